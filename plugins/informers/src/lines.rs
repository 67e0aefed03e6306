//! Lines out of the frames of a body. What is whole in a frame is not copied; what is not waits for its rest, and takes nothing once it
//! has gone.

use bytes::{Buf, Bytes, BytesMut};

#[derive(Default)]
pub(crate) struct Lines {
    /// The beginning of a line, from frames before.
    begun: BytesMut,
    frame: Bytes,
}

impl Lines {
    /// What comes next. All lines of what came before have been taken.
    pub(crate) fn push(&mut self, frame: Bytes) {
        debug_assert!(self.frame.is_empty(), "its lines have been taken");
        self.frame = frame;
    }

    /// The next whole line that is not empty, without its end.
    pub(crate) fn next(&mut self) -> Option<Bytes> {
        loop {
            let Some(end) = memchr::memchr(b'\n', &self.frame) else {
                self.begun.extend_from_slice(&self.frame);
                self.frame = Bytes::new();
                return None;
            };
            let mut line = self.frame.split_to(end);
            self.frame.advance(1);
            if !self.begun.is_empty() {
                let mut whole = std::mem::take(&mut self.begun);
                whole.extend_from_slice(&line);
                line = whole.freeze();
            }
            if !line.trim_ascii().is_empty() {
                return Some(line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn lines_are_the_same_however_they_are_cut(text in "[ab\n ]{0,60}", cuts in prop::collection::vec(0..60_usize, 0..10)) {
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let (mut lines, mut found) = (Lines::default(), Vec::new());
            for cut in cuts.windows(2) {
                lines.push(Bytes::copy_from_slice(&text.as_bytes()[cut[0]..cut[1]]));
                while let Some(line) = lines.next() {
                    found.push(String::from_utf8(line.to_vec()).unwrap());
                }
            }
            let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
            let expected: Vec<_> = whole.split('\n').filter(|line| !line.trim().is_empty()).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
