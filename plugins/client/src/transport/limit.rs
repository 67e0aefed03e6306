//! How much of an answer may still come: counted as it comes, so that what is too much is never held.

use http::StatusCode;

use super::{
    class::Class,
    error::{Part, TransportError},
};
use crate::Limits;

pub(crate) enum Limit {
    /// Who reads stops by itself.
    None,
    /// All of it together.
    Whole { what: Part, limit: u64, came: u64 },
    /// Each line, however many there are.
    Line { limit: u64, came: u64 },
}

impl Limit {
    pub(crate) fn of(class: Class, status: StatusCode, limits: &Limits) -> Self {
        let whole = |what, limit| Self::Whole {
            what,
            limit,
            came: 0,
        };
        match class {
            Class::Probe(_) => Self::None,
            // Why something was refused is said in few words, whatever it was.
            _ if !status.is_success() => whole(Part::Call, limits.call),
            Class::Call => whole(Part::Call, limits.call),
            Class::List => whole(Part::List, limits.list),
            Class::Stream => Self::Line {
                limit: limits.line,
                came: 0,
            },
        }
    }

    /// Whether an answer that says that it has so many bytes is begun with.
    pub(crate) fn admits(&self, announced: u64) -> Result<(), TransportError> {
        match *self {
            Self::Whole { what, limit, .. } if announced > limit => {
                Err(TransportError::TooLarge { what, limit })
            }
            _ => Ok(()),
        }
    }

    /// Counts what came.
    pub(crate) fn take(&mut self, data: &[u8]) -> Result<(), TransportError> {
        let (what, limit, most) = match self {
            Self::None => return Ok(()),
            Self::Whole { what, limit, came } => {
                *came += length(data);
                (*what, *limit, *came)
            }
            Self::Line { limit, came } => {
                let mut most = 0;
                for (nth, line) in data.split(|&byte| byte == b'\n').enumerate() {
                    let before = if nth == 0 { *came } else { 0 };
                    *came = before + length(line);
                    most = most.max(*came);
                }
                (Part::Line, *limit, most)
            }
        };
        if most > limit {
            return Err(TransportError::TooLarge { what, limit });
        }
        Ok(())
    }
}

fn length(data: &[u8]) -> u64 {
    data.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(class: Class, status: u16) -> Limit {
        let limits = Limits {
            probe: 1,
            call: 4,
            list: 8,
            line: 4,
        };
        Limit::of(class, StatusCode::from_u16(status).unwrap(), &limits)
    }

    #[test]
    fn each_line_of_a_stream_has_its_limit_and_all_together_have_none() {
        let mut line = limit(Class::Stream, 200);
        for data in ["ab", "cd\nabcd", "\n", "\n\nabcd\nab", "c\n", "abcd"] {
            line.take(data.as_bytes()).unwrap();
        }
        assert!(line.take(b"e\n").is_err());
        assert!(limit(Class::Stream, 200).take(b"a\nabcde\nb").is_err());
        assert!(limit(Class::Stream, 200).admits(u64::MAX).is_ok());
    }

    #[test]
    fn all_of_an_answer_has_the_limit_of_its_class_and_a_refusal_that_of_a_call() {
        for (class, status, most) in [
            (Class::Call, 200, 4),
            (Class::List, 200, 8),
            (Class::List, 403, 4),
            (Class::Stream, 410, 4),
        ] {
            let mut limit = limit(class, status);
            assert!(limit.admits(most).is_ok() && limit.admits(most + 1).is_err());
            for _ in 0..most {
                limit.take(b"\n").unwrap();
            }
            assert!(limit.take(b"\n").is_err(), "{class:?} {status}");
        }
    }
}
