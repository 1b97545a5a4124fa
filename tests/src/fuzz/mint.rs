//! Turns an input into decisions, so that every change by libFuzzer has a meaning. At the end of the input every number
//! is zero.

/// The unread rest of an input.
pub(super) struct Mint<'a>(&'a [u8]);

impl<'a> Mint<'a> {
    pub(super) fn new(input: &'a [u8]) -> Self {
        Self(input)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn u8(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    pub(super) fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.u8(), self.u8()])
    }

    pub(super) fn u32(&mut self) -> u32 {
        u32::from(self.u16()) << 16 | u32::from(self.u16())
    }

    /// One of `count` things.
    pub(super) fn below(&mut self, count: usize) -> usize {
        usize::from(self.u8()) % count.max(1)
    }

    /// The next bytes, or fewer at the end of the input.
    pub(super) fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub(super) fn rest(&mut self) -> &'a [u8] {
        self.take(usize::MAX)
    }
}
