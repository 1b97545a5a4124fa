//! Which sequence numbers of a context were seen (RFC 2203 section 5.3.3.1).

/// A call is late if its sequence number is this much or more below the highest one: the window is larger than a
/// client's slots and credits. The server announces it to the client.
pub const WINDOW: u32 = 1024;
const WORD_BITS: u32 = u64::BITS;
const WORDS: usize = (WINDOW / WORD_BITS) as usize;

/// The last sequence number, and which of the [`WINDOW`] up to it were seen: a bit for each, at its number modulo the
/// window.
#[derive(Debug)]
pub(super) struct Window {
    last: Option<u32>,
    seen: [u64; WORDS],
}

impl Window {
    pub(super) fn new() -> Self {
        Self { last: None, seen: [0; WORDS] }
    }

    /// Whether a call with this number is to be dropped: it was seen, or is too old to know.
    pub(super) fn is_late(&self, sequence: u32) -> bool {
        match self.last {
            // GSS-2203-5.3.3.1-b
            Some(last) if sequence <= last => last - sequence >= WINDOW || self.bit(sequence),
            _ => false,
        }
    }

    /// Notes the number of a call whose verifier is right. False if the call must be dropped.
    pub(super) fn note(&mut self, sequence: u32) -> bool {
        if self.is_late(sequence) {
            return false;
        }
        match self.last {
            Some(last) if sequence > last => {
                if sequence - last >= WINDOW {
                    self.seen = [0; WORDS];
                } else {
                    (last + 1..sequence).for_each(|skipped| self.set(skipped, false));
                }
                self.last = Some(sequence);
            }
            None => self.last = Some(sequence),
            Some(_) => {}
        }
        self.set(sequence, true);
        true
    }

    fn place(sequence: u32) -> (usize, u64) {
        let at = sequence % WINDOW;
        ((at / WORD_BITS) as usize, 1 << (at % WORD_BITS))
    }

    fn bit(&self, sequence: u32) -> bool {
        let (word, bit) = Self::place(sequence);
        self.seen[word] & bit != 0
    }

    fn set(&mut self, sequence: u32, is_seen: bool) {
        let (word, bit) = Self::place(sequence);
        if is_seen {
            self.seen[word] |= bit;
        } else {
            self.seen[word] &= !bit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    /// proves: GSS-2203-5.3.3.1-a, GSS-2203-5.3.3.1-b
    #[test]
    fn a_number_counts_once_and_for_as_long_as_the_window_reaches() {
        let mut window = Window::new();
        assert!(window.note(5) && !window.note(5));
        assert!(window.note(4), "below the first, within the window");
        assert!(window.note(5 + WINDOW - 1) && !window.note(5), "the last that is remembered");
        assert!(window.note(6), "not seen, and within the window");
        assert!(window.note(7 + WINDOW));
        assert!(!window.note(7), "one past the window, though it was never seen");
        assert!(window.note(8), "at its edge");
    }

    #[test]
    fn the_largest_numbers_are_counted_as_others() {
        let mut window = Window::new();
        assert!(window.note(0) && window.note(u32::MAX) && !window.note(0) && !window.note(u32::MAX));
        assert!(window.note(u32::MAX - WINDOW + 1) && !window.note(u32::MAX - WINDOW));
    }

    proptest! {
        /// Compared with a set of all numbers that were seen.
        ///
        /// proves: GSS-2203-5.3.3.1-a, GSS-2203-5.3.3.1-b
        #[test]
        fn it_says_what_a_set_says(steps in prop::collection::vec((0..4u8, 0..2 * WINDOW), 1..400)) {
            let (mut window, mut seen, mut last) = (Window::new(), HashSet::new(), None::<u32>);
            for (kind, by) in steps {
                let base = last.unwrap_or(5 * WINDOW);
                let sequence = match kind {
                    0 => base.saturating_sub(by),
                    1 => base + by,
                    2 => base + by % 3,
                    _ => base.saturating_sub(by % 5),
                };
                let too_old = last.is_some_and(|last| sequence + WINDOW <= last);
                let expected = !too_old && !seen.contains(&sequence);
                prop_assert_eq!(window.is_late(sequence), !expected);
                prop_assert_eq!(window.note(sequence), expected);
                if expected {
                    seen.insert(sequence);
                    last = Some(base.max(sequence)).filter(|_| last.is_some()).or(Some(sequence));
                }
            }
        }
    }
}
