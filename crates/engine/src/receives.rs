//! How many receives a connection has, and how many are missing.

/// The receives of one connection, in either version. Receives that are asked for count as posted, because the driver
/// posts them before it does anything else.
#[derive(Debug)]
pub(crate) struct Receives {
    posted: usize,
    asked: usize,
}

impl Receives {
    /// A connection with so many receives.
    pub(crate) fn new(posted: usize) -> Self {
        Self { posted, asked: 0 }
    }

    /// Receives that are posted.
    pub(crate) fn posted(&self) -> usize {
        self.posted
    }

    /// A message has used up a receive.
    pub(crate) fn consumed(&mut self) {
        self.posted = self.posted.saturating_sub(1);
    }

    /// Asks for the receives that are missing, so that there are at least `needed`.
    pub(crate) fn ensure(&mut self, needed: usize) {
        let missing = needed.saturating_sub(self.posted);
        self.posted += missing;
        self.asked += missing;
    }

    /// Whether there are receives to post.
    pub(crate) fn asks(&self) -> bool {
        self.asked > 0
    }

    /// The receives to post now.
    pub(crate) fn take_asked(&mut self) -> Option<usize> {
        (self.asked > 0).then(|| std::mem::take(&mut self.asked))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_asked_for_once() {
        let mut receives = Receives::new(2);
        receives.ensure(2);
        assert_eq!((receives.asks(), receives.take_asked()), (false, None));
        receives.ensure(5);
        receives.consumed();
        receives.ensure(5);
        assert_eq!((receives.asks(), receives.posted()), (true, 5));
        assert_eq!((receives.take_asked(), receives.asks(), receives.take_asked()), (Some(4), false, None));
        receives.ensure(3);
        assert_eq!((receives.take_asked(), receives.posted()), (None, 5), "none is taken back");
    }
}
