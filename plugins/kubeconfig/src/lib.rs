//! Kubeconfigs for `clustercache`.
//!
//! A document becomes, for each of its contexts, a [`ClusterAccess`](clustercache::ClusterAccess) or a [`Refusal`] that names the
//! field and says what to do. It is judged by an allow-list on the raw document, before any loader has seen it, because what stands in
//! a Secret is another party's data: a stock client would run the programs and read the files that it names.
//!
//! [`KubeconfigFile`] follows files as a source of clusters, with the files and programs that they name.
//!
//! # Two policies
//!
//! | field | [`Policy::tenant`] | [`Policy::operator`] |
//! | --- | --- | --- |
//! | `server` | `https`; no address of the operator's own machines | `https`, or `http` with [`allow_http`](Policy::allow_http) |
//! | `certificate-authority-data` | must be there | must be there, or the next |
//! | `certificate-authority`, `client-certificate`, `client-key`, `tokenFile` | refused | read from the file's directory, and again on change |
//! | `client-certificate-data` and `client-key-data`, `token` | one of the two, or both | the same |
//! | `exec` | refused | with [`allow_exec`](Policy::allow_exec), by name |
//! | `proxy-url` | with [`allow_proxy`](Policy::allow_proxy), by name | any |
//! | `insecure-skip-tls-verify: true` | refused | with [`allow_insecure_skip_tls_verify`](Policy::allow_insecure_skip_tls_verify) |
//! | `as`, `as-uid`, `as-groups`, `as-user-extra` | refused | with [`allow_impersonation`](Policy::allow_impersonation) |
//! | `tls-server-name`, `namespace`, `current-context`, names | yes | yes |
//! | `extensions`, `preferences` | empty | passed over |
//! | `auth-provider`, `username`, `password`, `disable-compression: true`, any other | refused | refused |
//!
//! # Programs
//!
//! A user's `exec` is run as `kubectl` runs it, by the protocol `client.authentication.k8s.io` (v1 and v1beta1), with these differences:
//!
//! - Only what [`allow_exec`](Policy::allow_exec) names, letter by letter; a bare name is looked up in the absolute directories of this process's
//!   `PATH`, whatever the file says.
//! - Its environment is empty but for `PATH`, the file's `env`, what [`exec_env`](Policy::exec_env) gives (which wins), and
//!   `KUBERNETES_EXEC_INFO`. Nobody is there to talk to it: its input is closed, and `interactiveMode: Always` is refused.
//! - It has 30 s ([`exec_deadline`](KubeconfigFile::exec_deadline)) and may print 256 KiB; then it is killed. 16 run at
//!   once, and beside them 4 of those that did not end in time. Once it has ended, its process group is killed: what it left in the
//!   background does not outlive it.
//! - Users that run the same share a run, and a credential. It is renewed when a fifth of its time is left (5 minutes at most), and run
//!   again when the server says 401. If that fails, the last credential holds until its end; retries back off to a minute.
//! - Until it has answered for the first time, its clusters are gated, and so they are where an edit has moved them to another server or CA:
//!   the old one is not dialled any more, and if the CA says that it was another cluster, nothing of it is served. While it has failed and nothing holds, they are refused, with its
//!   exit status and how much it printed. What it printed is never shown: that may be a secret.
//!
//! ```no_run
//! use clustercache_kubeconfig::{KubeconfigFile, Policy};
//!
//! let policy = Policy::operator()
//!     .allow_exec(["aws", "gke-gcloud-auth-plugin"])
//!     .exec_env("HOME", "/var/lib/fleet");
//! let source = KubeconfigFile::from_env().policy(policy);
//! # let _ = source;
//! ```

mod address;
mod allow;
mod document;
mod entry;
mod exec;
mod file;
mod follow;
mod material;
mod merge;
mod named;
mod paths;
mod policy;
mod problem;
mod programs;
mod read;
mod refusal;
mod state;
mod tree;
mod watch;

pub use document::Kubeconfig;
pub use exec::ExecFailure;
pub use file::KubeconfigFile;
pub use policy::Policy;
pub use problem::{FileProblem, FileProblemReason};
pub use refusal::{Refusal, RefusalReason};
