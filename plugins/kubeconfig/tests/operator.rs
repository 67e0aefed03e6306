//! What an operator's document may have beyond a tenant's: by default, and what for by name.

use clustercache::{AccessError, ClusterAccess};
use clustercache_kubeconfig::{Kubeconfig, Policy, Refusal, RefusalReason as Why};

mod support;
use support::{CONTEXT, Parts, written};

fn read(document: &str, policy: &Policy) -> Result<ClusterAccess, Refusal> {
    let kubeconfig = Kubeconfig::parse(document.as_bytes(), policy)?;
    kubeconfig.current().map(|(_, access)| access)
}

#[track_caller]
fn refused(document: &str, policy: &Policy, path: &str, reason: &Why) {
    let refusal = read(document, policy).expect_err(path);
    assert_eq!((refusal.path(), refusal.reason()), (path, reason));
}

#[test]
fn what_nobody_reads_is_accepted_of_an_operator() {
    let parts = Parts::new();
    // As minikube and older kubectls write them.
    let extension =
        "extensions: [{name: cluster_info, extension: {provider: minikube.sigs.k8s.io}}]";
    let document = written(
        &format!("{}, {extension}", parts.cluster()),
        &format!("token: t, {extension}"),
        &format!("{CONTEXT}, {extension}"),
    ) + "preferences: {colors: true}\n";
    read(&document, &Policy::operator()).unwrap();
    refused(
        &document,
        &Policy::tenant(),
        "preferences",
        &Why::Preferences,
    );
}

#[test]
fn a_proxy_is_an_operators_to_name_and_a_tenants_if_it_is_allowed_by_name() {
    let parts = Parts::new();
    let with = |url: &str| {
        let cluster = format!("{}, proxy-url: '{url}'", parts.cluster());
        written(&cluster, "token: t", CONTEXT)
    };
    let named = Policy::tenant().allow_proxy(["http://proxy.corp:3128", "socks5://10.0.0.9"]);
    let path = "clusters[0].cluster.proxy-url";
    for (url, shown, tenants) in [
        ("http://proxy.corp:3128", "http://proxy.corp:3128/", true),
        ("http://Proxy.Corp:3128/", "http://Proxy.Corp:3128/", true),
        (
            "http://me:pw@proxy.corp:3128",
            "http://proxy.corp:3128/",
            true,
        ),
        ("socks5://10.0.0.9:1080", "socks5://10.0.0.9:1080/", true),
        ("https://proxy.corp:3128", "https://proxy.corp:3128/", false),
        ("http://proxy.corp", "http://proxy.corp/", false),
        ("http://proxy.corp:3129", "http://proxy.corp:3129/", false),
        ("http://proxy.corp:3128@evil", "http://evil/", false),
        (
            "http://evil@proxy.corp.evil:3128",
            "http://proxy.corp.evil:3128/",
            false,
        ),
    ] {
        let access = read(&with(url), &Policy::operator()).unwrap();
        assert_eq!(access.endpoint().proxy().unwrap().url(), shown);
        refused(&with(url), &Policy::tenant(), path, &Why::Proxy);
        if tenants {
            let access = read(&with(url), &named).unwrap();
            assert_eq!(access.endpoint().proxy().unwrap().url(), shown);
        } else {
            refused(&with(url), &named, path, &Why::Proxy);
        }
    }
    for url in [
        "proxy.corp:3128",
        "ftp://proxy.corp",
        "http://p:0",
        "http://p/path",
        "http://",
    ] {
        refused(&with(url), &Policy::operator(), path, &Why::ProxyUrl);
        refused(&with(url), &named, path, &Why::Proxy);
    }
    assert!(
        read(&with(""), &Policy::tenant())
            .unwrap()
            .endpoint()
            .proxy()
            .is_none()
    );
}

#[test]
fn http_is_for_whom_an_operator_allows_it() {
    let parts = Parts::new();
    let path = "clusters[0].cluster.server";
    let allowed = Policy::operator().allow_http();
    let plain = written("server: 'http://10.0.0.1:8080'", "token: t", CONTEXT);
    let access = read(&plain, &allowed).unwrap();
    assert_eq!(access.endpoint().url(), "http://10.0.0.1:8080/");
    for policy in [
        Policy::operator(),
        Policy::tenant(),
        Policy::tenant().allow_http(),
    ] {
        refused(&plain, &policy, path, &Why::NotHttps);
    }
    // Nothing else comes with it.
    let unix = plain.replace("http://10.0.0.1:8080", "unix:///run/api.sock");
    refused(&unix, &allowed, path, &Why::NotHttps);
    let https = plain.replace("http://", "https://");
    refused(
        &https,
        &allowed,
        "clusters[0].cluster.certificate-authority-data",
        &Why::Missing,
    );
    let with_ca = plain.replace(
        "8080'",
        &format!("8080', certificate-authority-data: {}", parts.ca),
    );
    read(&with_ca, &allowed).unwrap();
}

#[test]
fn a_server_is_not_verified_only_where_an_operator_allows_it() {
    let parts = Parts::new();
    let flag = "insecure-skip-tls-verify";
    let cluster = format!("server: 'https://10.0.0.1', {flag}: true");
    let document = written(&cluster, "token: t", CONTEXT);
    let allowed = Policy::operator().allow_insecure_skip_tls_verify();
    let access = read(&document, &allowed).unwrap();
    assert!(access.endpoint().skips_tls_verify() && access.ca().certificates().is_empty());
    let path = format!("clusters[0].cluster.{flag}");
    for policy in [
        Policy::operator(),
        Policy::tenant(),
        Policy::tenant().allow_insecure_skip_tls_verify(),
    ] {
        refused(&document, &policy, &path, &Why::InsecureSkipTlsVerify);
    }
    let unsure = document.replace("verify: true", "verify: 'true'");
    let reason = Why::WrongType {
        expected: "true or false",
    };
    refused(&unsure, &allowed, &path, &reason);
    let both = written(
        &format!("{}, {flag}: true", parts.cluster()),
        "token: t",
        CONTEXT,
    );
    let path = "clusters[0].cluster.certificate-authority-data";
    refused(&both, &allowed, path, &Why::Conflict { with: flag });
    let verified = written(
        &format!("{}, {flag}: false", parts.cluster()),
        "token: t",
        CONTEXT,
    );
    assert!(
        !read(&verified, &allowed)
            .unwrap()
            .endpoint()
            .skips_tls_verify()
    );
}

#[test]
fn a_user_acts_as_another_only_where_an_operator_allows_it() {
    let parts = Parts::new();
    let document =
        |fields: &str| written(&parts.cluster(), &format!("token: t, {fields}"), CONTEXT);
    let all = "as: admin, as-uid: '7', as-groups: [a, b], as-user-extra: {scopes: [x, y]}";
    let allowed = Policy::operator().allow_impersonation();
    let access = read(&document(all), &allowed).unwrap();
    let who = access.credential().impersonation().unwrap();
    assert_eq!(
        (who.user.as_str(), who.uid.as_deref()),
        ("admin", Some("7"))
    );
    assert_eq!(who.groups, ["a", "b"]);
    assert_eq!(who.extra.get("scopes").unwrap(), &["x", "y"]);
    for policy in [
        Policy::operator(),
        Policy::tenant(),
        Policy::tenant().allow_impersonation(),
    ] {
        refused(
            &document("as: admin"),
            &policy,
            "users[0].user.as",
            &Why::Impersonation,
        );
    }
    let text = Why::WrongType { expected: "text" };
    let cannot = |field| Why::Access(AccessError::Impersonation { field }.into());
    for (fields, path, reason) in [
        ("as-uid: '7'", "as", Why::Missing),
        ("as-groups: [a]", "as", Why::Missing),
        ("as-user-extra: {a: [b]}", "as", Why::Missing),
        ("as: ''", "", Why::Nothing),
        ("as: a, as-groups: [[b]]", "as-groups[0]", text.clone()),
        (
            "as: a, as-user-extra: {b: [{}]}",
            "as-user-extra.b[0]",
            text,
        ),
        (
            "as: a, as-user-extra: {b: c}",
            "as-user-extra.b",
            Why::WrongType { expected: "a list" },
        ),
        (
            "as: a, as-groups: [\"b\\r\\nc: d\"]",
            "as-groups",
            cannot("groups"),
        ),
        ("as: \"b\\n\"", "as", cannot("user")),
    ] {
        if path.is_empty() {
            assert!(
                read(&document(fields), &allowed)
                    .unwrap()
                    .credential()
                    .impersonation()
                    .is_none()
            );
        } else {
            refused(
                &document(fields),
                &allowed,
                &format!("users[0].user.{path}"),
                &reason,
            );
        }
    }
}

#[test]
fn an_operators_address_list_holds_and_a_tenants_can_be_widened() {
    let parts = Parts::new();
    let at = |server: &str| {
        let cluster = parts.cluster().replace("10.0.0.1:6443", server);
        written(&cluster, "token: t", CONTEXT)
    };
    let path = "clusters[0].cluster.server";
    read(&at("127.0.0.1"), &Policy::operator()).unwrap();
    let net = |text: &str| text.parse().unwrap();
    let denied = clustercache::AddressPolicy::any().deny(net("10.0.0.0/8"));
    let policy = Policy::operator().addresses(denied.clone());
    refused(&at("10.1.2.3"), &policy, path, &Why::ForbiddenAddress);
    let access = read(&at("api.example.com"), &policy).unwrap();
    assert_eq!(
        access.endpoint().addresses(),
        &denied,
        "the client checks what it resolves to"
    );
    let widened = clustercache::AddressPolicy::tenant().allow(net("127.0.0.0/8"));
    let policy = Policy::tenant().addresses(widened.clone());
    let access = read(&at("127.0.0.1"), &policy).unwrap();
    assert_eq!(access.endpoint().addresses(), &widened);
    refused(&at("[::1]"), &policy, path, &Why::ForbiddenAddress);
}

#[test]
fn a_document_that_is_no_files_names_no_file_and_no_program() {
    let parts = Parts::new();
    let policy = Policy::operator().allow_exec(["sh"]);
    for (field, name, reason) in [
        (
            "tokenFile: /etc/hosts",
            "tokenFile",
            Why::File { inline: "token" },
        ),
        ("exec: {command: sh}", "exec", Why::Exec),
    ] {
        let document = written(&parts.cluster(), field, CONTEXT);
        refused(
            &document,
            &policy,
            &format!("users[0].user.{name}"),
            &reason,
        );
    }
}
