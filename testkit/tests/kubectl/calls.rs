//! The calls, in their order, and what stands on kubectl's standard input.

/// One call of kubectl.
pub(crate) struct Call {
    line: String,
    input: String,
}

impl Call {
    pub(crate) fn new(line: &str, input: &str) -> Self {
        Self {
            line: line.to_owned(),
            input: input.to_owned(),
        }
    }

    /// The words of the line; `'` holds some together.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut quoted = false;
        for letter in self.line.chars() {
            match letter {
                '\'' => quoted = !quoted,
                ' ' if !quoted => words.push(String::new()),
                _ => words.last_mut().expect("it begins with one").push(letter),
            }
        }
        words
    }

    pub(crate) fn input(&self) -> &str {
        &self.input
    }
}

const NODE: &str = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"worker","labels":{"node-role.kubernetes.io/worker":""}}}"#;

const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: { name: web-1, labels: { app: web } }
spec: { nodeName: worker, containers: [{ name: c, image: "nginx:1.27", ports: [{ containerPort: 80 }] }] }
---
apiVersion: v1
kind: Pod
metadata: { name: db-1, labels: { app: db } }
spec: { nodeName: worker, containers: [{ name: c, image: "postgres" }] }
"#;

const DAEMON: &str = r#"
apiVersion: apps/v1
kind: DaemonSet
metadata: { name: agent }
spec:
  selector: { matchLabels: { app: agent } }
  template:
    metadata: { labels: { app: agent } }
    spec: { containers: [{ name: c, image: "agent:1" }] }
"#;

const VOLUMES: &str = r"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: { name: data }
spec: { accessModes: [ReadWriteOnce], storageClassName: fast, resources: { requests: { storage: 1Gi } } }
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: { name: leader }
spec: { holderIdentity: me }
";

const WIDGET: &str = r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"one"},"spec":{"size":1}}"#;

const READY: &str = r#"{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}],"containerStatuses":[{"name":"c","ready":true,"restartCount":0,"image":"i","imageID":"i","state":{"running":{}},"lastState":{}}]}}"#;

pub(crate) const CALLS: &[(&str, &str)] = &[
    ("get namespaces --field-selector=metadata.name=default", ""),
    ("get pods", ""),
    ("get nothing", ""),
    ("create namespace test", ""),
    ("get namespace test -o name", ""),
    ("describe namespace test", ""),
    ("create -f -", NODE),
    ("get nodes", ""),
    ("get nodes -o wide", ""),
    ("cordon worker", ""),
    ("get nodes", ""),
    ("uncordon worker", ""),
    ("label node worker zone=a", ""),
    ("get nodes -L zone", ""),
    ("label node worker zone=b", ""),
    ("label node worker zone=b --overwrite", ""),
    ("annotate node worker note=x", ""),
    ("taint node worker key=value:NoSchedule", ""),
    ("get node worker -o jsonpath={.spec.taints[*].key}", ""),
    ("create configmap settings --from-literal=a=1", ""),
    ("create configmap settings --from-literal=a=1", ""),
    ("get configmap settings", ""),
    ("get configmap settings -o jsonpath={.data}", ""),
    ("describe configmap settings", ""),
    ("patch configmap settings -p '{\"data\":{\"c\":\"3\"}}'", ""),
    (
        "patch configmap settings --type=merge -p '{\"data\":{\"c\":null}}'",
        "",
    ),
    (
        "patch configmap settings --type=json -p '[{\"op\":\"test\",\"path\":\"/data/a\",\"value\":\"9\"}]'",
        "",
    ),
    ("patch configmap settings -p '{}'", ""),
    ("get configmap settings missing", ""),
    ("create secret generic keys --from-literal=k=v", ""),
    ("get secret keys", ""),
    ("describe secret keys", ""),
    ("create serviceaccount robot", ""),
    ("get serviceaccount robot", ""),
    ("create token robot", ""),
    ("create token robot --duration=1m", ""),
    ("create -f -", PODS),
    ("get pods", ""),
    ("get pods -o wide", ""),
    ("get pods -l app=web", ""),
    ("get pods --field-selector=spec.nodeName=worker -o name", ""),
    ("get pods --field-selector=spec.colour=red", ""),
    ("get pods --show-labels", ""),
    ("get pods --sort-by=.metadata.name -o name", ""),
    (
        "patch pod web-1 --subresource=status --type=merge --patch-file=/dev/stdin",
        READY,
    ),
    ("get pods", ""),
    ("get pod web-1 -o jsonpath={.status.phase}", ""),
    ("describe pod web-1", ""),
    ("create service clusterip web --tcp=80:80", ""),
    ("get services -l app=web", ""),
    ("create deployment web --image=nginx --replicas=2", ""),
    ("get deployments -o wide", ""),
    ("patch deployment web -p '{\"spec\":{\"replicas\":3}}'", ""),
    ("set image deployment/web nginx=nginx:2", ""),
    ("get deployment web -o jsonpath={.metadata.generation}", ""),
    ("create -f -", DAEMON),
    ("get daemonsets -o wide", ""),
    ("create -f -", VOLUMES),
    ("get pvc,lease", ""),
    (
        "create poddisruptionbudget web --selector=app=web --min-available=1",
        "",
    ),
    ("get pdb", ""),
    ("drain worker --ignore-daemonsets --timeout=2s", ""),
    (
        "drain worker --ignore-daemonsets --force --dry-run=server",
        "",
    ),
    ("create -f -", WIDGET),
    ("get widgets", ""),
    ("get wd one -o jsonpath={.spec}", ""),
    (
        "patch widget one --type=merge -p '{\"spec\":{\"size\":2}}'",
        "",
    ),
    (
        "patch widget one --subresource=status --type=merge -p '{\"status\":{\"ready\":true}}'",
        "",
    ),
    ("describe widget one", ""),
    ("get pods --chunk-size=1", ""),
    ("get events", ""),
    ("get pods -w --request-timeout=1s", ""),
    ("wait --for=condition=Ready pod/web-1 --timeout=5s", ""),
    ("delete pod db-1 --grace-period=0 --force", ""),
    ("delete configmap settings --dry-run=server", ""),
    ("delete configmap settings", ""),
    ("delete configmap settings", ""),
    ("delete configmap settings --ignore-not-found", ""),
    ("delete pods --all --grace-period=0 --force", ""),
    ("api-resources --api-group=example.com", ""),
    ("api-resources --api-group=policy", ""),
    ("auth whoami -o jsonpath={.kind}", ""),
    ("get --raw /readyz", ""),
    ("get --raw /nothing", ""),
];
