//! What is wrong with a document as a whole, and what is the matter of one context only.

use clustercache_kubeconfig::{Kubeconfig, Policy, RefusalReason as Why};

mod support;
use support::{CONTEXT, Parts, current, refused, written};

#[test]
fn json_and_block_scalars_are_read() {
    let parts = Parts::new();
    let json = format!(
        r#"{{"apiVersion":"v1","kind":"Config","current-context":"dev",
        "clusters":[{{"name":"c","cluster":{{"server":"https://a","certificate-authority-data":"{}"}}}}],
        "users":[{{"name":"u","user":{{"token":"t"}}}}],"contexts":[{{"name":"dev","context":{{"cluster":"c","user":"u"}}}}]}}"#,
        parts.ca
    );
    current(&json).unwrap();
    let (head, tail) = parts.ca.split_at(64);
    let block = format!(
        "clusters:\n- name: c\n  cluster:\n    server: https://a\n    certificate-authority-data: |\n      {head}\n      {tail}\n\
         users: [{{name: u, user: {{token: t}}}}]\ncontexts: [{{name: dev, context: {{{CONTEXT}}}}}]\ncurrent-context: dev\n"
    );
    current(&block).unwrap();
}

#[test]
fn what_is_wrong_with_the_whole_is_the_documents() {
    let parts = Parts::new();
    let sound = written(&parts.cluster(), "token: t", CONTEXT);
    for (document, path, reason) in [
        (String::new(), "", Why::Nothing),
        ("# nothing\n".into(), "", Why::Nothing),
        ("---\n".into(), "", Why::Nothing),
        (
            "hello".into(),
            "",
            Why::WrongType {
                expected: "a mapping",
            },
        ),
        (
            "[]".into(),
            "",
            Why::WrongType {
                expected: "a mapping",
            },
        ),
        (
            sound.replace("kind: Config", "kind: Secret"),
            "kind",
            Why::NotAKubeconfig { expected: "Config" },
        ),
        (
            sound.replace("apiVersion: v1", "apiVersion: v2"),
            "apiVersion",
            Why::NotAKubeconfig { expected: "v1" },
        ),
        (format!("{sound}---\n{sound}"), "", Why::SecondDocument),
        (
            format!("{sound}kind: Config\n"),
            "kind",
            Why::DuplicateField,
        ),
        (
            sound.replace("token: t", "token: t, token: u"),
            "users[0].user.token",
            Why::DuplicateField,
        ),
        (sound.replace("token: t", "token: *t"), "", Why::Alias),
        (
            sound
                .replace("name: u", "name: &t u")
                .replace("token: t", "token: *t"),
            "users[0].user.token",
            Why::Alias,
        ),
        (
            sound.replace("token: t", "token: !!binary dDBrZW4="),
            "users[0].user.token",
            Why::Tag,
        ),
        (
            sound.replace("token: t", "[token]: t"),
            "users[0].user",
            Why::WrongType {
                expected: "a mapping whose names are text",
            },
        ),
    ] {
        refused(&document, path, &reason);
    }
    let refusal = Kubeconfig::parse(b"\xff\xfe", &Policy::tenant()).unwrap_err();
    assert_eq!(refusal.reason(), &Why::NotUtf8);
}

#[test]
fn a_field_of_the_whole_is_the_documents() {
    let parts = Parts::new();
    let sound = written(&parts.cluster(), "token: t", CONTEXT);
    let twice = |list: &str, item: &str| format!("{list}:\n- {{{item}}}\n- {{{item}}}\n");
    for (document, path, reason) in [
        (
            format!("{sound}preferences: {{colors: true}}\n"),
            "preferences",
            Why::Preferences,
        ),
        (
            format!("{sound}extensions: [{{}}]\n"),
            "extensions",
            Why::Extensions,
        ),
        (format!("{sound}colour: red\n"), "colour", Why::UnknownField),
        (
            "users: {}".into(),
            "users",
            Why::WrongType { expected: "a list" },
        ),
        (
            "users: [u]".into(),
            "users[0]",
            Why::WrongType {
                expected: "a mapping with a name",
            },
        ),
        ("users: [{user: {}}]".into(), "users[0].name", Why::Missing),
        ("users: [{name: ~}]".into(), "users[0].name", Why::Missing),
        (
            twice("users", "name: a"),
            "users[1].name",
            Why::DuplicateName,
        ),
        (
            twice("clusters", "name: a"),
            "clusters[1].name",
            Why::DuplicateName,
        ),
        (
            twice("contexts", "name: a"),
            "contexts[1].name",
            Why::DuplicateName,
        ),
        (
            sound.replace("current-context: dev", ""),
            "current-context",
            Why::Missing,
        ),
        (
            sound.replace("current-context: dev", "current-context: x"),
            "current-context",
            Why::Dangling { what: "a context" },
        ),
        (
            "%YAML 1.2\n---\nkind: Config\n".into(),
            "",
            Why::Syntax { line: 1, column: 1 },
        ),
        (
            "users: [\n  {name: ]\n".into(),
            "",
            Why::Syntax { line: 2, column: 3 },
        ),
    ] {
        refused(&document, path, &reason);
    }
}

#[test]
fn a_broken_context_does_not_spoil_its_siblings() {
    let parts = Parts::new();
    let document = parts
        .fleet(&[("a", 1, "t"), ("b", 2, "t"), ("c", 3, "t"), ("d", 4, "t")])
        .replacen("token: t", "exec: {command: x}", 1)
        .replacen("10.0.0.2:6443'", "10.0.0.2:6443', proxy-url: 'http://x'", 1)
        .replacen(
            "- name: d\n  context:",
            "- name: d\n  new: x\n  context:",
            1,
        );
    let kubeconfig = Kubeconfig::parse(document.as_bytes(), &Policy::tenant()).unwrap();
    let paths: Vec<_> = kubeconfig
        .contexts()
        .map(|(name, access)| (name, access.err().map(|refusal| refusal.path().to_owned())))
        .collect();
    let at = |path: &str| Some(path.to_owned());
    assert_eq!(
        paths,
        [
            ("a", at("users[0].user.exec")),
            ("b", at("clusters[1].cluster.proxy-url")),
            ("c", None),
            ("d", at("contexts[3].new")),
        ]
    );
}

#[test]
fn an_odd_name_of_a_field_is_measured_and_not_shown() {
    let refusal = current("\"eyJ0eXAi\\e[31m\": 1").unwrap_err();
    assert_eq!(refusal.path(), "<a name of 13 bytes>");
    let refusal = current(&format!("{}: 1", "x".repeat(64))).unwrap_err();
    assert_eq!(refusal.path(), "<a name of 64 bytes>");
}

#[test]
fn a_secret_that_stands_where_a_name_should_is_measured_and_not_shown() {
    let parts = Parts::new();
    for secret in [
        "abcdef.0123456789abcdef",
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "eyJhbGciOiJSUzI1NiJ9",
        "0123456789abcdef0123456789abcdef01234567",
    ] {
        let measured = format!("<a name of {} bytes>", secret.len());
        let refusal = current(&format!("{secret}: x")).unwrap_err();
        assert_eq!(refusal.path(), measured);
        let user = format!("{}, {secret}: x", parts.user());
        let refusal = current(&written(&parts.cluster(), &user, CONTEXT)).unwrap_err();
        assert_eq!(refusal.path(), format!("users[0].user.{measured}"));
        assert!(!format!("{refusal} {refusal:?}").contains(secret));
    }
}
