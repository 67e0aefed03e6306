//! Telling a Kubernetes `Status` from any other body: who answers 403 with one is an API server, who answers it with a page of HTML
//! is something before it.

use serde::Deserialize;

/// The most of a body that is looked at, in bytes.
const MOST: usize = 16 << 10;

/// What every `Status` in protobuf begins with: the magic number, and the type as field 1 of the envelope.
const PROTOBUF: &[u8] = b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Status";

#[derive(Deserialize)]
struct TypeMeta {
    kind: String,
}

/// Whether this whole body is a `Status`, in JSON or protobuf.
pub(crate) fn is_status(body: &[u8]) -> bool {
    body.starts_with(PROTOBUF)
        || serde_json::from_slice::<TypeMeta>(body).is_ok_and(|meta| meta.kind == "Status")
}

/// Adds to what is kept of a body. A body that is larger is no `Status`, because its beginning is not JSON.
pub(crate) fn gather(body: &mut Vec<u8>, more: &[u8]) {
    let room = MOST.saturating_sub(body.len());
    body.extend_from_slice(&more[..more.len().min(room)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_status_is_one() {
        assert!(is_status(
            br#"{"apiVersion":"v1","kind":"Status","code":403}"#
        ));
        assert!(is_status(b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Status\x12\x00"));
        for other in [
            &br#"{"kind":"Pod"}"#[..],
            br#"{"kind":"Status""#,
            b"",
            b"<html>Status</html>",
        ] {
            assert!(!is_status(other));
        }
    }

    #[test]
    fn a_body_of_any_size_is_kept_in_part_only() {
        let mut body = Vec::new();
        gather(&mut body, &vec![b' '; 20_000]);
        gather(&mut body, &vec![b' '; 20_000]);
        assert_eq!(body.len(), MOST);
    }
}
