//! Which programs are run at all, and from where; what is judged before one is. Each program is a real child.
#![cfg(target_os = "linux")]

use std::path::Path;

use clustercache::ClusterSource;
use clustercache_kubeconfig::{KubeconfigFile, Policy};

mod support;
use support::{
    events::Events,
    programs::{Programs, token},
};

/// The first event of a source, whose context `a` has this user.
async fn told(programs: &Programs, user: &str, policy: Policy) -> String {
    let path = programs.write(&[("a", 1, user)]);
    let source = support::events::watched(&path).policy(policy);
    let mut events = Events::of(&source);
    let first = events.next().await.unwrap();
    if !first.starts_with('?') {
        return first;
    }
    events.are(&["synced"]).await;
    events.next().await.unwrap()
}

#[tokio::test]
async fn only_what_is_allowed_by_its_very_name_is_run() {
    let programs = Programs::new();
    let script = format!("touch $DIR/ran\n{}", token("t"));
    let user = programs.user("login", &script);
    for (command, policy) in [
        ("sh", Policy::operator()),
        ("sh", Policy::operator().allow_exec(["bash", "/bin/sh"])),
        ("/bin/sh", Policy::operator().allow_exec(["sh"])),
        ("./sh", Policy::operator().allow_exec(["sh"])),
        ("sh ", Policy::operator().allow_exec(["sh"])),
        ("sh", Policy::tenant().allow_exec(["sh"])),
    ] {
        let user = user.replace("command: sh", &format!("command: '{command}'"));
        let event = told(&programs, &user, policy).await;
        assert!(event.starts_with("!a users[0].user.exec"), "{event}");
        assert!(
            event.contains("`Policy::operator().allow_exec([\"aws\"])`"),
            "{event}"
        );
    }
    assert!(!programs.path("ran").exists());
    let user = user.replace("command: sh", "command: /bin/sh");
    let event = told(&programs, &user, Policy::operator().allow_exec(["/bin/sh"])).await;
    assert_eq!(event, "+a 10.0.0.1 t");
    assert!(programs.path("ran").exists());
}

#[tokio::test]
async fn the_users_that_clouds_write_are_run_where_their_programs_are_allowed() {
    // As `aws eks update-kubeconfig`, `gcloud container clusters get-credentials` and `kubelogin convert-kubeconfig` write them.
    let eks = r"exec:
      apiVersion: client.authentication.k8s.io/v1beta1
      args:
      - --region
      - eu-central-1
      - eks
      - get-token
      - --cluster-name
      - fleet
      - --output
      - json
      command: aws
      env:
      - name: AWS_PROFILE
        value: fleet
      provideClusterInfo: false";
    let gke = r"exec:
      apiVersion: client.authentication.k8s.io/v1beta1
      command: gke-gcloud-auth-plugin
      installHint: Install gke-gcloud-auth-plugin for use with kubectl by following
        https://cloud.google.com/kubernetes-engine/docs/how-to/cluster-access-for-kubectl#install_plugin
      provideClusterInfo: true
      env: null
      args: null";
    let aks = r"exec:
      apiVersion: client.authentication.k8s.io/v1beta1
      args: [get-token, --login, workloadidentity, --server-id, 6dae42f8-4368-4678-94ff-3960e28e3630]
      command: kubelogin
      env: null
      installHint: |2

        kubelogin is not installed which is required to connect to AAD enabled cluster.
      interactiveMode: IfAvailable
      provideClusterInfo: false";
    for (user, command) in [
        (eks, "aws"),
        (gke, "gke-gcloud-auth-plugin"),
        (aks, "kubelogin"),
    ] {
        let programs = Programs::new();
        let path = programs.write(&[("a", 1, "USER")]);
        let document = std::fs::read_to_string(&path).unwrap();
        let document = document.replace("user: {USER}", &format!("user:\n    {user}"));
        // In place of the program that is not here.
        let document = document.replace(
            &format!("command: {command}"),
            &format!("command: bin/{command}"),
        );
        std::fs::write(&path, document).unwrap();
        std::fs::create_dir(programs.path("bin")).unwrap();
        let script = token(command).replace("/v1", "/v1beta1");
        executable(&programs.path("bin").join(command), &script);
        let policy = Policy::operator().allow_exec([format!("bin/{command}")]);
        let mut events = Events::of(&support::events::watched(&path).policy(policy));
        assert!(events.next().await.unwrap().starts_with("?a"));
        events.are(&["synced"]).await;
        assert_eq!(events.next().await, Ok(format!("+a 10.0.0.1 {command}")));
    }
}

fn executable(path: &Path, script: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn a_bare_name_is_of_the_operators_path_and_a_path_of_the_files_directory() {
    let programs = Programs::new();
    std::fs::create_dir(programs.path("bin")).unwrap();
    let script = format!("touch '{}'\n{}", programs.path("ran").display(), token("t"));
    executable(&programs.path("fleet-login"), &script);
    executable(&programs.path("bin/fleet-login"), &script);
    let user = |command: &str| {
        format!(
            "exec: {{apiVersion: client.authentication.k8s.io/v1, interactiveMode: IfAvailable, command: {command}, \
             installHint: \"get it from \\e[31m{}\"}}",
            "x".repeat(1_000)
        )
    };
    let policy = || Policy::operator().allow_exec(["fleet-login", "bin/fleet-login"]);
    let event = told(&programs, &user("fleet-login"), policy()).await;
    assert!(
        event.contains("`fleet-login` gave no credential: it is not there"),
        "{event}"
    );
    assert!(event.contains("get it from \\u{1b}[31mxxx"), "{event}");
    assert!(!event.contains('\u{1b}') && event.len() < 1_000, "{event}");
    assert!(!programs.path("ran").exists());
    let event = told(&programs, &user("bin/fleet-login"), policy()).await;
    assert_eq!(event, "+a 10.0.0.1 t");
    std::fs::write(programs.path("bin/fleet-login"), "").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(programs.path("bin/fleet-login"), mode).unwrap();
    let event = told(&programs, &user("bin/fleet-login"), policy()).await;
    assert!(
        event.contains("cannot be started (permission denied)"),
        "{event}"
    );
}

#[tokio::test]
async fn what_a_users_exec_says_is_judged_before_it_is_run() {
    let programs = Programs::new();
    let script = format!("touch $DIR/ran\n{}", token("t"));
    let user = programs.user("login", &script);
    let (v1, never) = (
        "client.authentication.k8s.io/v1,",
        "interactiveMode: Never, ",
    );
    for (user, at, why) in [
        (
            user.replace(never, "interactiveMode: Always, "),
            ".exec.interactiveMode",
            "nobody is there",
        ),
        (user.replace(never, ""), ".exec.interactiveMode", "missing"),
        (
            user.replace(v1, "client.authentication.k8s.io/v1alpha1,"),
            ".exec.apiVersion",
            "v1beta1",
        ),
        (
            user.replace("apiVersion: client.authentication.k8s.io/v1, ", ""),
            ".exec.apiVersion",
            "missing",
        ),
        (
            user.replace("command: sh, ", ""),
            ".exec.command",
            "missing",
        ),
        (
            user.replace("command: sh", "commando: sh"),
            ".exec.commando",
            "not a field",
        ),
        (
            user.replace("args: [", "args: [[a], "),
            ".exec.args[0]",
            "text",
        ),
        (
            user.replace("args: [", "args: [\"a\\0\", "),
            ".exec.args[0]",
            "NUL",
        ),
        (
            user.replace("args:", "env: [{name: 'a=b', value: c}], args:"),
            ".exec.env[0]",
            "=",
        ),
        (
            user.replace("args:", "env: [{value: c}], args:"),
            ".exec.env[0].name",
            "missing",
        ),
        (
            user.replace("args:", "provideClusterInfo: 1, args:"),
            ".exec.provideClusterInfo",
            "true or false",
        ),
        (
            format!("{user}, token: c4nary"),
            ".token",
            "`exec` is given too",
        ),
        (
            format!("{user}, tokenFile: c4nary"),
            ".tokenFile",
            "`exec` is given too",
        ),
    ] {
        let event = told(&programs, &user, Policy::operator().allow_exec(["sh"])).await;
        assert!(
            event.starts_with(&format!("!a users[0].user{at} in ")),
            "{event}"
        );
        assert!(event.contains(why) && !event.contains("c4nary"), "{event}");
    }
    assert!(!programs.path("ran").exists());
}

#[test]
fn what_a_policy_allows_without_effect_is_a_mistake_in_the_set_up() {
    let wrong = |policy: Policy| KubeconfigFile::at("config").policy(policy).mistakes().len();
    assert_eq!(wrong(Policy::operator().allow_exec(["sh"]).allow_http()), 0);
    assert_eq!(wrong(Policy::tenant().allow_proxy(["http://p:3128"])), 0);
    assert_eq!(wrong(Policy::tenant().allow_exec(["sh"])), 1);
    assert_eq!(wrong(Policy::tenant().allow_http()), 1);
    assert_eq!(wrong(Policy::tenant().allow_proxy(["p:3128"])), 1);
    assert_eq!(wrong(Policy::operator().allow_exec([""])), 1);
    assert_eq!(wrong(Policy::operator().exec_env("A=B", "c")), 1);
}
