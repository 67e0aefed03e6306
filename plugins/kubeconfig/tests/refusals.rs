//! Which fields are refused, and where the refusal says that they are. Each row is a rule: the field, its path, the reason.

use clustercache_kubeconfig::RefusalReason as Why;

mod support;
use support::{CONTEXT, Parts, current, refused, written};

const CA: &str = "certificate-authority-data";

#[test]
fn a_client_certificate_or_a_token_or_both_are_an_access() {
    let parts = Parts::new();
    let both = format!("{}, token: t0ken", parts.user());
    for (user, certificate, token) in [
        (parts.user().as_str(), true, false),
        ("token: t0ken", false, true),
        (&both, true, true),
    ] {
        let access = current(&written(&parts.cluster(), user, CONTEXT)).unwrap();
        assert_eq!(access.endpoint().url(), "https://10.0.0.1:6443/");
        assert_eq!(access.ca().certificates().len(), 1);
        let credential = access.credential();
        assert_eq!(
            (
                credential.client_certificate().is_some(),
                credential.token().is_some()
            ),
            (certificate, token)
        );
    }
}

#[test]
fn what_carries_no_danger_is_accepted() {
    let parts = Parts::new();
    let cluster = format!(
        "{}, tls-server-name: api.example.com, insecure-skip-tls-verify: false, proxy-url: '', certificate-authority: '', \
         disable-compression: false, extensions: []",
        parts.cluster()
    );
    let user = "token: t, exec: null, auth-provider: ~, as: '', as-groups: [], as-user-extra: {}, username: ''";
    let context = "cluster: c, user: u, namespace: default, extensions: null";
    let document = written(&cluster, user, context) + "preferences: {}\nextensions: []\n";
    let access = current(&document).unwrap();
    assert_eq!(access.endpoint().server_name(), Some("api.example.com"));
    assert!(current(&written(&parts.cluster(), "token: 12345", CONTEXT)).is_ok());
    let v6 = parts.cluster().replace("10.0.0.1", "[fd00::1]");
    let access = current(&written(&v6, "token: t", CONTEXT)).unwrap();
    assert_eq!(access.endpoint().url().host(), Some("[fd00::1]"));
    let with_path = "server: 'https://rancher/k8s/clusters/c-1', certificate-authority-data: ";
    let document = written(&format!("{with_path}{}", parts.ca), "token: t", CONTEXT);
    assert_eq!(
        current(&document).unwrap().endpoint().url().path(),
        "/k8s/clusters/c-1"
    );
}

#[test]
fn a_field_of_a_cluster_that_is_dangerous_is_refused_by_its_path() {
    let parts = Parts::new();
    for (field, reason) in [
        (
            "certificate-authority: /etc/ca.crt",
            Why::File {
                inline: "certificate-authority-data",
            },
        ),
        ("insecure-skip-tls-verify: true", Why::InsecureSkipTlsVerify),
        (
            "insecure-skip-tls-verify: 'false'",
            Why::InsecureSkipTlsVerify,
        ),
        ("insecure-skip-tls-verify: yes", Why::InsecureSkipTlsVerify),
        ("proxy-url: 'http://proxy'", Why::Proxy),
        ("disable-compression: true", Why::DisableCompression),
        ("extensions: [{name: x, extension: {}}]", Why::Extensions),
        ("Server: x", Why::UnknownField),
        ("new-field: null", Why::UnknownField),
        ("tls-server-name: 'a b'", Why::NotAServerName),
        ("tls-server-name: [a]", Why::WrongType { expected: "text" }),
    ] {
        let document = written(
            &format!("{}, {field}", parts.cluster()),
            "token: t",
            CONTEXT,
        );
        let name = field.split(':').next().unwrap();
        refused(&document, &format!("clusters[0].cluster.{name}"), &reason);
    }
}

#[test]
fn a_field_of_a_user_that_is_dangerous_is_refused_by_its_path() {
    let parts = Parts::new();
    for (field, reason) in [
        (
            "exec: {command: aws, apiVersion: client.authentication.k8s.io/v1}",
            Why::Exec,
        ),
        ("exec: {}", Why::Exec),
        (
            "auth-provider: {name: gcp, config: {cmd-path: gcloud}}",
            Why::AuthProvider,
        ),
        ("tokenFile: /var/run/token", Why::File { inline: "token" }),
        (
            "client-certificate: /a.crt",
            Why::File {
                inline: "client-certificate-data",
            },
        ),
        (
            "client-key: /a.key",
            Why::File {
                inline: "client-key-data",
            },
        ),
        ("as: admin", Why::Impersonation),
        ("as-uid: '1'", Why::Impersonation),
        ("as-groups: [system:masters]", Why::Impersonation),
        ("as-user-extra: {a: [b]}", Why::Impersonation),
        ("username: admin", Why::Password),
        ("password: hunter2", Why::Password),
        ("extensions: {a: b}", Why::Extensions),
        ("impersonate: x", Why::UnknownField),
    ] {
        let document = written(&parts.cluster(), &format!("token: t, {field}"), CONTEXT);
        let name = field.split(':').next().unwrap();
        refused(&document, &format!("users[0].user.{name}"), &reason);
    }
}

#[test]
fn a_server_must_be_a_bare_https_url() {
    let parts = Parts::new();
    let url = || Why::Access(clustercache::AccessError::Url.into());
    let url_parts = || Why::Access(clustercache::AccessError::UrlParts.into());
    for (server, reason) in [
        ("http://10.0.0.1", Why::NotHttps),
        ("unix:///run/api.sock", Why::NotHttps),
        ("10.0.0.1:6443", Why::NoScheme),
        ("api.example.com", Why::NoScheme),
        ("https://user:pw@10.0.0.1", url_parts()),
        ("https://10.0.0.1?a=b", url_parts()),
        ("https://10.0.0.1#frag", Why::ServerParts),
        ("https://10.0.0.1/path#frag", Why::ServerParts),
        ("https://10.0.0.1:0", Why::ServerParts),
        ("https://10.0.0.1:99999", Why::ServerParts),
        ("https://10.0.0.1:", Why::ServerParts),
        ("https://", url()),
        ("https://a b", url()),
        ("", Why::Empty),
    ] {
        let cluster = format!(
            "server: '{server}', certificate-authority-data: {}",
            parts.ca
        );
        let document = written(&cluster, "token: t", CONTEXT);
        refused(&document, "clusters[0].cluster.server", &reason);
    }
}

#[test]
fn what_a_cluster_must_have_is_named_when_it_is_not_there() {
    let parts = Parts::new();
    let ca_only = format!("certificate-authority-data: {}", parts.ca);
    let empty_ca = "server: 'https://a', certificate-authority-data: ''";
    for (cluster, name, reason) in [
        (ca_only.as_str(), "server", Why::Missing),
        ("server: 'https://a'", CA, Why::Missing),
        (empty_ca, CA, Why::Empty),
    ] {
        let document = written(cluster, "token: t", CONTEXT);
        refused(&document, &format!("clusters[0].cluster.{name}"), &reason);
    }
}

#[test]
fn what_a_user_must_have_is_named_when_it_is_not_there() {
    let parts = Parts::new();
    let certificate_only = format!("client-certificate-data: {}", parts.certificate);
    let key_only = format!("client-key-data: {}", parts.key);
    let with_empty_token = format!("{}, token: ''", parts.user());
    for (user, name, reason) in [
        ("", "", Why::NoCredential),
        ("token: null", "", Why::NoCredential),
        ("token: ''", ".token", Why::Empty),
        (&with_empty_token, ".token", Why::Empty),
        (&certificate_only, ".client-key-data", Why::Missing),
        (&key_only, ".client-certificate-data", Why::Missing),
    ] {
        let document = written(&parts.cluster(), user, CONTEXT);
        refused(&document, &format!("users[0].user{name}"), &reason);
    }
}

#[test]
fn what_a_context_must_name_is_named_when_it_is_not_there() {
    let parts = Parts::new();
    let dangling = |what| Why::Dangling { what };
    let text = Why::WrongType { expected: "text" };
    for (context, name, reason) in [
        ("cluster: c", "user", Why::Missing),
        ("cluster: c, user: ''", "user", Why::Empty),
        ("user: u", "cluster", Why::Missing),
        ("cluster: x, user: u", "cluster", dangling("a cluster")),
        ("cluster: c, user: x", "user", dangling("a user")),
        ("cluster: c, user: u, as: x", "as", Why::UnknownField),
        ("cluster: c, user: u, namespace: []", "namespace", text),
    ] {
        let document = written(&parts.cluster(), "token: t", context);
        refused(&document, &format!("contexts[0].context.{name}"), &reason);
    }
}

#[test]
fn data_that_is_no_base64_no_pem_or_no_certificate_is_refused_by_its_path() {
    let parts = Parts::new();
    let ca = |data: &str| format!("server: 'https://a', certificate-authority-data: {data}");
    let path = "clusters[0].cluster.certificate-authority-data";
    refused(
        &written(&ca("'***'"), "token: t", CONTEXT),
        path,
        &Why::Base64,
    );
    let cut = &parts.ca[..parts.ca.len() - 3];
    refused(&written(&ca(cut), "token: t", CONTEXT), path, &Why::Base64);
    let part = "the CA bundle";
    let no_pem = Why::Access(clustercache::AccessError::NoCertificate { part }.into());
    refused(
        &written(&ca("aGVsbG8="), "token: t", CONTEXT),
        path,
        &no_pem,
    );

    let user = |certificate: &str, key: &str| {
        format!("client-certificate-data: {certificate}, client-key-data: {key}")
    };
    let document = |user: &str| written(&parts.cluster(), user, CONTEXT);
    let path = "users[0].user.client-certificate-data";
    refused(&document(&user("'!'", &parts.key)), path, &Why::Base64);
    let part = "the client certificate";
    let no_pem = Why::Access(clustercache::AccessError::NoCertificate { part }.into());
    refused(&document(&user("aGVsbG8=", &parts.key)), path, &no_pem);
    let path = "users[0].user.client-key-data";
    refused(
        &document(&user(&parts.certificate, "'!'")),
        path,
        &Why::Base64,
    );
    let no_key = Why::Access(clustercache::AccessError::Key.into());
    refused(
        &document(&user(&parts.certificate, "aGVsbG8=")),
        path,
        &no_key,
    );
    refused(&document(&user(&parts.certificate, "//79")), path, &no_key);
    let no_token = Why::Access(clustercache::AccessError::Token.into());
    refused(&document("token: 'a b'"), "users[0].user.token", &no_token);
}

#[cfg(unix)]
#[test]
fn a_path_that_would_block_is_never_opened() {
    let parts = Parts::new();
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    let made = std::process::Command::new("mkfifo")
        .arg(&fifo)
        .status()
        .unwrap();
    assert!(made.success());
    let fifo = fifo.display();
    for (field, inline) in [
        ("tokenFile", "token"),
        ("client-certificate", "client-certificate-data"),
        ("client-key", "client-key-data"),
    ] {
        let document = written(&parts.cluster(), &format!("{field}: {fifo}"), CONTEXT);
        refused(
            &document,
            &format!("users[0].user.{field}"),
            &Why::File { inline },
        );
    }
    let cluster = format!("server: 'https://10.0.0.1', certificate-authority: {fifo}");
    let inline = "certificate-authority-data";
    refused(
        &written(&cluster, "token: t", CONTEXT),
        "clusters[0].cluster.certificate-authority",
        &Why::File { inline },
    );
}

#[test]
fn an_address_of_the_operators_own_machines_is_refused_in_whatever_spelling() {
    let parts = Parts::new();
    let with = |host: &str| {
        let cluster = parts.cluster().replace("10.0.0.1", host);
        written(&cluster, "token: t", CONTEXT)
    };
    let path = "clusters[0].cluster.server";
    for host in [
        "169.254.169.254",
        "169.254.169.254.",
        "[::ffff:169.254.169.254]",
        "[::ffff:a9fe:a9fe]",
        "[::169.254.169.254]",
        "[64:ff9b::a9fe:a9fe]",
        "[64:ff9b::169.254.169.254]",
        "[64:ff9b:1::a9fe:a9fe]",
        "[2002:a9fe:a9fe::1]",
        "[fe80::1]",
        "[FE80::1]",
        "[fd00:ec2::254]",
        "127.0.0.1",
        "[::1]",
        "[0:0:0:0:0:0:0:1]",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
        "[::]",
        "224.0.0.1",
        "[ff02::1]",
    ] {
        refused(&with(host), path, &Why::ForbiddenAddress);
    }
    // Decimal, octal, hexadecimal, with fewer parts: a resolver may take each for 169.254.169.254 or 127.0.0.1.
    for host in [
        "2852039166",
        "0xA9FEA9FE",
        "0xa9.0xfe.0xa9.0xfe",
        "0251.0376.0251.0376",
        "025177524776",
        "169.254.43518",
        "169.16689662",
        "169.254.0251.254",
        "0",
        "127.1",
        "2130706433",
        "0x7f.1",
        "017700000001",
    ] {
        refused(&with(host), path, &Why::OddAddress);
    }
    // Names are judged when they are dialled.
    current(&with("metadata.google.internal")).unwrap();
    for host in ["10.0.0.1", "192.168.1.1", "[fd00::1]", "8.8.8.8"] {
        let access = current(&with(host)).unwrap();
        let tenants = clustercache::AddressPolicy::tenant();
        assert_eq!(access.endpoint().addresses(), &tenants);
    }
}
