//! No secret, and no value of a field that is not known, ever shows in an error, in `Debug` or in a log at TRACE; neither as it stands, nor
//! encoded in one of the usual ways.

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE},
};
use clustercache_kubeconfig::{Kubeconfig, Policy};

mod support;
use support::{Parts, log, written};

/// Has what each encoding writes differently.
const CANARY: &str = "c4nary/SE+CRET";

/// How the canary would look.
fn forms() -> Vec<String> {
    let mut forms = vec![
        CANARY.to_owned(),
        CANARY.replace('/', "%2F").replace('+', "%2B"),
    ];
    let hex = |byte: u8| format!("{byte:02x}");
    forms.push(CANARY.bytes().map(hex).collect());
    // Within something longer it may begin at any of three places; what its neighbours have a part in is left out.
    for (before, from) in [(0, 0), (1, 2), (2, 3)] {
        let longer = format!("{}{CANARY}", "x".repeat(before));
        for encoded in [STANDARD.encode(&longer), URL_SAFE.encode(&longer)] {
            let whole = (longer.len() / 3) * 4;
            forms.push(encoded[from..whole].to_owned());
        }
    }
    forms
}

#[track_caller]
fn nothing_in(text: &str) {
    for form in forms() {
        let at = text.find(&form);
        let around = at.map(|at| &text[at.saturating_sub(200)..(at + 40).min(text.len())]);
        assert_eq!(around, None, "{form}");
    }
}

#[test]
fn each_form_would_be_seen() {
    for before in 0..5 {
        let text = format!("{}{CANARY}{}", "a".repeat(before), "b".repeat(before));
        for text in [
            text.clone(),
            STANDARD.encode(&text),
            URL_SAFE.encode(&text),
            text.replace('/', "%2F").replace('+', "%2B"),
        ] {
            let seen = std::panic::catch_unwind(|| nothing_in(&text));
            assert!(seen.is_err(), "{text}");
        }
    }
}

/// As much as can be allowed.
fn everything() -> Policy {
    Policy::operator()
        .allow_exec(["sh", "aws"])
        .exec_env("SECRET", CANARY)
        .allow_proxy([format!("http://{CANARY}@proxy")])
        .allow_http()
        .allow_impersonation()
        .allow_insecure_skip_tls_verify()
}

/// Everything that a caller could print.
fn printed(document: &str, policy: &Policy) -> String {
    match Kubeconfig::parse(document.as_bytes(), policy) {
        Err(refusal) => format!("{refusal} {refusal:?} {:?}", refusal.reason()),
        Ok(kubeconfig) => {
            let mut text = format!("{kubeconfig:?} {kubeconfig:#?} {:?}", kubeconfig.current());
            for (_, access) in kubeconfig.contexts() {
                text.extend([format!("{access:?}"), format!("{access:#?}")]);
                if let Err(refusal) = access {
                    text += &refusal.to_string();
                }
            }
            text
        }
    }
}

#[track_caller]
fn silent(document: &str) {
    assert!(!document.is_empty());
    for policy in [Policy::tenant(), everything()] {
        nothing_in(&printed(document, &policy));
    }
}

#[test]
fn no_policy_shows_what_it_gives_to_programs() {
    nothing_in(&format!(
        "{:?} {:#?} {:?}",
        everything(),
        everything(),
        everything().mistakes()
    ));
    let wrong = Policy::tenant()
        .exec_env(format!("{CANARY}="), CANARY)
        .allow_proxy([CANARY]);
    assert_eq!(wrong.mistakes().len(), 2);
    nothing_in(&wrong.mistakes().concat());
}

#[test]
fn no_field_shows_its_value_whether_known_or_not() {
    let parts = Parts::new();
    let base64 = STANDARD.encode(CANARY);
    let values = [
        CANARY.to_owned(),
        base64.clone(),
        format!("'{CANARY} with spaces'"),
        format!("[{CANARY}]"),
        format!("{{deep: [{{er: {CANARY}}}]}}"),
        format!("https://{CANARY}@host"),
        format!("https://host?{CANARY}"),
        format!("!{CANARY} x"),
        format!("*{CANARY}"),
        format!("{CANARY}: {CANARY}"),
        format!("\"{CANARY}"),
    ];
    let fields = [
        "server",
        "certificate-authority-data",
        "tls-server-name",
        "certificate-authority",
        "insecure-skip-tls-verify",
        "proxy-url",
        "disable-compression",
        "extensions",
        "client-certificate-data",
        "client-key-data",
        "token",
        "client-certificate",
        "client-key",
        "tokenFile",
        "exec",
        "auth-provider",
        "as",
        "as-uid",
        "as-groups",
        "as-user-extra",
        "username",
        "password",
        "cluster",
        "user",
        "namespace",
        "name",
        "apiVersion",
        "args",
        "env",
        "installHint",
        "provideClusterInfo",
        "interactiveMode",
        "unknown",
    ];
    for value in &values {
        for field in fields {
            let field = format!("{field}: {value}");
            silent(&written(&field, "token: t", "cluster: c, user: u"));
            silent(&written(&parts.cluster(), &field, "cluster: c, user: u"));
            silent(&written(&parts.cluster(), "token: t", &field));
            let sound = written(&parts.cluster(), "token: t", "cluster: c, user: u");
            silent(&(sound.clone() + &field));
            silent(&written(
                &parts.cluster(),
                &format!("exec: {{command: sh, {field}}}"),
                "cluster: c, user: u",
            ));
            silent(&sound.replace("- name: u", &format!("- name: u\n  {field}")));
        }
    }
}

#[test]
fn no_accepted_credential_shows() {
    let parts = Parts::new();
    let user = format!("{}, token: {CANARY}", parts.user());
    let document = written(&parts.cluster(), &user, "cluster: c, user: u");
    let text = printed(&document, &Policy::tenant());
    assert!(text.contains("client certificate and token"), "{text}");
    silent(&document);
    let key = STANDARD.decode(&parts.key).unwrap();
    let key = std::str::from_utf8(&key).unwrap();
    let line = key.lines().nth(1).unwrap();
    for secret in [line, &line[..32], &parts.key, &parts.key[..32]] {
        assert!(!text.contains(secret));
    }
}

#[test]
fn a_credential_that_is_wrong_by_a_little_does_not_show() {
    let parts = Parts::new();
    let key = STANDARD.encode(format!(
        "-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----\n"
    ));
    let certificate = STANDARD.encode(format!(
        "-----BEGIN CERTIFICATE-----\n{CANARY}\n-----END CERTIFICATE-----\n"
    ));
    let context = "cluster: c, user: u";
    for user in [
        format!(
            "client-certificate-data: {}, client-key-data: {key}",
            parts.certificate
        ),
        format!(
            "client-certificate-data: {certificate}, client-key-data: {}",
            parts.key
        ),
        format!(
            "client-certificate-data: {}, client-key-data: {CANARY}!",
            parts.certificate
        ),
        format!("token: \"{CANARY}\\n\""),
        format!("token: {CANARY}, token: {CANARY}"),
        format!("token:{CANARY}: x"),
        format!("{}{CANARY}: x", "x".repeat(40)),
    ] {
        silent(&written(&parts.cluster(), &user, context));
        silent(&written(&user, "token: t", context));
    }
}

#[test]
fn no_proxys_user_shows() {
    let parts = Parts::new();
    for url in [
        format!("http://{CANARY}:{CANARY}@proxy:3128"),
        format!("http://{}@proxy", CANARY.replace('/', "%2F")),
        format!("http://{CANARY}"),
        format!("ftp://{CANARY}@proxy"),
        format!("http://proxy/?{CANARY}"),
    ] {
        let cluster = format!("{}, proxy-url: '{url}'", parts.cluster());
        silent(&written(&cluster, "token: t", "cluster: c, user: u"));
    }
}

/// What a program that knows the canary may do.
#[cfg(target_os = "linux")]
fn scripts() -> Vec<String> {
    use support::programs::{answer, token, token_for};
    let out = [
        token(CANARY),
        token_for(CANARY, 3_600),
        token_for(CANARY, -1),
        answer(&format!(r#""token":"{CANARY} {CANARY}""#)),
        answer(&format!(r#""token":["{CANARY}"]"#)),
        answer(&format!(r#""token":{CANARY}"#)),
        answer(&format!(r#""{CANARY}":"{CANARY}""#)),
        answer(&format!(r#""token":"t","expirationTimestamp":"{CANARY}""#)),
        answer(&format!(r#""clientKeyData":"{CANARY}""#)),
        answer(&format!(
            r#""clientKeyData":"{CANARY}","clientCertificateData":"{CANARY}""#
        )),
        token(CANARY).replace("{\"token", &format!("\"{CANARY}\", \"x\": {{\"token")),
        token(CANARY).replace("ExecCredential", CANARY),
        token(CANARY).replace("client.authentication.k8s.io/v1", CANARY),
        format!("echo {CANARY}"),
        format!("yes {CANARY}"),
        format!("yes {CANARY} >&2"),
        "env".to_owned(),
        r#"printf '%s' "$KUBERNETES_EXEC_INFO""#.to_owned(),
    ];
    let fails = out
        .clone()
        .map(|script| format!("{script}\necho {CANARY} >&2\nexit 3"));
    out.into_iter().chain(fails).collect()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn nothing_of_programs_and_files_shows_in_what_a_source_tells_and_logs() {
    use clustercache::SourceEvent;
    use support::{events::Events, programs::Programs};

    let programs = Programs::new();
    let secret = format!(
        "provideClusterInfo: true, env: [{{name: SECRET_TOO, value: '{CANARY}'}}], args: ['"
    );
    let mut users: Vec<_> = scripts()
        .iter()
        .enumerate()
        .map(|(n, script)| programs.user(&format!("s{n}"), script))
        .map(|user| {
            user.replace("args: ['", &secret)
                .replace("']", &format!("', '{CANARY}']"))
        })
        .collect();
    let by_programs = users.len();
    std::fs::write(programs.path("token"), CANARY).unwrap();
    std::fs::write(programs.path("bad"), format!("{CANARY}\n{CANARY}")).unwrap();
    users.extend(
        [
            "tokenFile: token",
            "tokenFile: bad",
            "client-certificate: bad, client-key: bad",
            "client-certificate: bad, client-key: token",
        ]
        .map(str::to_owned),
    );
    users.push(format!("tokenFile: '{CANARY}'"));
    let names: Vec<_> = (0..users.len()).map(|n| format!("c{n}")).collect();
    let contexts: Vec<_> = names
        .iter()
        .zip(&users)
        .map(|(name, user)| (name.as_str(), 1, user.as_str()))
        .collect();
    let path = programs.write(&contexts);
    let document = std::fs::read_to_string(&path).unwrap();
    let document = document.replace(
        "certificate-authority-data",
        &format!(
            "proxy-url: 'http://me:{CANARY}@proxy', extensions: [{{name: client.authentication.k8s.io/exec, extension: {{a: '{CANARY}'}}}}], \
             certificate-authority-data"
        ),
    );
    support::events::replace(&path, &document);

    log::record();
    let source = support::events::watched(&path).policy(everything());
    let mut events = Events::of(&source);
    let mut told = String::new();
    let mut answered = 0;
    while answered < by_programs {
        let event = events.event().await.unwrap();
        if let SourceEvent::Upsert(cluster) = &event {
            let of_a_program = cluster.key.name()[1..].parse::<usize>().unwrap() < by_programs;
            let waits = matches!(cluster.access, clustercache::SourcedAccess::Gated(_));
            answered += usize::from(of_a_program && !waits);
        }
        told.extend([format!("{event:?}"), format!("{event:#?}")]);
    }
    for problem in source.problems() {
        told.extend([problem.to_string(), format!("{problem:?}")]);
    }
    assert!(told.contains("it failed with exit status: 3"), "{told}");
    // The file that is missing has the canary as its name, which is no secret: it is named to be found.
    let path = programs.path(CANARY).display().to_string();
    nothing_in(&told.replace(&path, "").replace(&format!("{path:?}"), ""));
    let logged = log::text();
    assert!(logged.contains("a program gave no credential"), "{logged}");
    assert!(logged.contains("a program gave a credential"), "{logged}");
    nothing_in(&logged.replace(&path, ""));
}
