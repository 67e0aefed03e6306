//! Documents made to hurt: none takes the stack, much memory or a panic, and each is refused with the limit that it hit.

use std::fmt::Write;

use clustercache_kubeconfig::{Kubeconfig, Policy, RefusalReason as Why};

mod support;
use support::{Parts, written};

#[track_caller]
fn reason(document: &str, policy: &Policy) -> Why {
    let refusal = Kubeconfig::parse(document.as_bytes(), policy).unwrap_err();
    refusal.reason().clone()
}

#[test]
fn a_tenant_has_64_kib_and_an_operator_more() {
    let parts = Parts::new();
    let sound = parts.fleet(&[("a", 1, "t")]);
    let padded = format!("{sound}#{}\n", "x".repeat(64 * 1024 - sound.len() - 2));
    assert_eq!(padded.len(), 64 * 1024);
    Kubeconfig::parse(padded.as_bytes(), &Policy::tenant()).unwrap();
    let over = padded + "\n";
    assert_eq!(
        reason(&over, &Policy::tenant()),
        Why::TooLarge { limit: 64 * 1024 }
    );
    Kubeconfig::parse(over.as_bytes(), &Policy::operator()).unwrap();
    assert_eq!(
        reason(&over, &Policy::operator().max_bytes(10)),
        Why::TooLarge { limit: 10 }
    );
}

#[test]
fn twenty_thousand_levels_are_too_deep() {
    let operator = Policy::operator();
    let deep = Why::TooDeep { limit: 32 };
    for open in ["[", "{a: ", "- ", "[{a: "] {
        assert_eq!(reason(&open.repeat(20_000), &operator), deep, "{open}");
    }
    assert_eq!(
        reason(
            &format!("{}{}", "[".repeat(20_000), "]".repeat(20_000)),
            &operator
        ),
        deep
    );
    let complex = Why::WrongType {
        expected: "a mapping whose names are text",
    };
    assert_eq!(reason(&"? ".repeat(20_000), &operator), complex);
    let mut blocks = String::new();
    for level in 0..1_000 {
        blocks += &" ".repeat(level);
        blocks += "a:\n";
    }
    assert_eq!(reason(&blocks, &operator), deep);
}

#[test]
fn an_alias_bomb_is_refused_at_its_first_alias() {
    let mut bomb = "a: &a [x, x]\n".to_owned();
    for (name, of) in ('b'..='z').zip('a'..) {
        writeln!(bomb, "{name}: &{name} [*{of}, *{of}, *{of}, *{of}]").unwrap();
    }
    let refusal = Kubeconfig::parse(bomb.as_bytes(), &Policy::tenant()).unwrap_err();
    assert_eq!((refusal.path(), refusal.reason()), ("b[0]", &Why::Alias));
    assert_eq!(reason("a: &a [*a]", &Policy::tenant()), Why::Alias);
    assert_eq!(reason("a: &a {<<: *a}", &Policy::tenant()), Why::Alias);
}

#[test]
fn a_million_values_are_too_many() {
    let list = format!("users: [{}]", "1,".repeat(1_000_000));
    assert_eq!(
        reason(&list, &Policy::operator()),
        Why::TooMany { limit: 250_000 }
    );
}

#[test]
fn a_thousand_contexts_with_certificates_are_read() {
    let parts = Parts::new();
    let user = parts.user();
    let names: Vec<_> = (0..1_000).map(|n| format!("c{n}")).collect();
    let contexts: Vec<_> = names.iter().map(|name| (name.as_str(), 1, "t")).collect();
    let document = parts.fleet(&contexts).replace("token: t", &user);
    let kubeconfig = Kubeconfig::parse(document.as_bytes(), &Policy::operator()).unwrap();
    assert_eq!(
        kubeconfig
            .contexts()
            .filter(|(_, access)| access.is_ok())
            .count(),
        1_000
    );
}

proptest::proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..512)) {
        let _ = Kubeconfig::parse(&bytes, &Policy::tenant());
        let _ = Kubeconfig::parse(&bytes, &everything());
    }

    #[test]
    fn arbitrary_yaml_like_text_never_panics(
        pieces in proptest::collection::vec(proptest::sample::select(PIECES), 0..64)
    ) {
        for policy in [Policy::tenant(), everything()] {
            if let Ok(kubeconfig) = Kubeconfig::parse(pieces.concat().as_bytes(), &policy) {
                let _ = kubeconfig.current();
                kubeconfig.contexts().for_each(drop);
            }
        }
    }

    #[test]
    fn a_sound_document_with_a_byte_changed_never_panics(at in 0..2_000_usize, byte in proptest::num::u8::ANY) {
        let mut bytes = SOUND.clone().into_bytes();
        let at = at % bytes.len();
        bytes[at] = byte;
        if let Ok(kubeconfig) = Kubeconfig::parse(&bytes, &Policy::tenant()) {
            kubeconfig.contexts().for_each(drop);
        }
    }
}

fn everything() -> Policy {
    Policy::operator()
        .allow_exec(["a"])
        .allow_http()
        .allow_impersonation()
        .allow_insecure_skip_tls_verify()
}

static SOUND: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
    let parts = Parts::new();
    written(&parts.cluster(), &parts.user(), "cluster: c, user: u")
});

const PIECES: &[&str] = &[
    "clusters:",
    "users:",
    "contexts:",
    "name: ",
    "- ",
    "\n",
    "  ",
    "    ",
    "{",
    "}",
    "[",
    "]",
    ", ",
    ": ",
    "a",
    "null",
    "'",
    "\"",
    "|",
    ">",
    "&a ",
    "*a",
    "!!str ",
    "!x ",
    "#",
    "---\n",
    "...\n",
    "? ",
    "server: ",
    "https://a",
    "cluster:",
    "user:",
    "context:",
    "token: ",
    "\t",
    "\u{feff}",
    "\u{85}",
    "%YAML 1.2\n",
    "current-context: ",
    "exec:",
    "command: a",
    "as: a",
    "as-user-extra: ",
    "proxy-url: ",
    "insecure-skip-tls-verify: true",
    "http://a",
    "<<: ",
];
