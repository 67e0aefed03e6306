//! Programs that give credentials, or do not: shell scripts, run as real children.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clustercache_kubeconfig::{KubeconfigFile, Policy};

use super::{Parts, events::watched};

/// A directory with a kubeconfig and its programs.
pub struct Programs {
    pub dir: tempfile::TempDir,
    pub parts: Parts,
}

impl Programs {
    pub fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            parts: Parts::new(),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The fields of a user whose program is this script. `$DIR` is the directory of all, `$RUN` the number of this run, from 1.
    pub fn user(&self, name: &str, script: &str) -> String {
        self.script(name, script);
        let path = self.path(name);
        format!(
            "exec: {{apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: sh, args: ['{}']}}",
            path.display()
        )
    }

    /// Writes or replaces a script.
    pub fn script(&self, name: &str, script: &str) {
        let dir = self.dir.path().display();
        let beside = self.path(&format!("{name}.new"));
        let counted = format!(
            "DIR='{dir}'\necho run >> $DIR/{name}.runs\nRUN=$(wc -l < $DIR/{name}.runs)\nRUN=$((RUN))\n{script}\n"
        );
        std::fs::write(&beside, counted).unwrap();
        std::fs::rename(beside, self.path(name)).unwrap();
    }

    /// How often a script was run.
    pub fn runs(&self, name: &str) -> usize {
        let runs = std::fs::read_to_string(self.path(&format!("{name}.runs")));
        runs.unwrap_or_default().lines().count()
    }

    /// A document of contexts: their name, the last octet of their server, and the fields of their user.
    pub fn write(&self, contexts: &[(&str, u8, &str)]) -> PathBuf {
        let plain: Vec<_> = contexts
            .iter()
            .map(|(name, host, _)| (*name, *host, "REPLACED"))
            .collect();
        let mut document = self.parts.fleet(&plain);
        for (_, _, user) in contexts {
            document = document.replacen("token: REPLACED", user, 1);
        }
        let path = self.path("config");
        super::events::replace(&path, &document);
        path
    }

    pub fn source(&self, contexts: &[(&str, u8, &str)]) -> KubeconfigFile {
        watched(&self.write(contexts)).policy(Policy::operator().allow_exec(["sh"]))
    }

    /// Waits until a script has written a file with a line in it.
    pub async fn line(&self, name: &str) -> String {
        let path = self.path(name);
        eventually(name, || {
            let text = std::fs::read_to_string(&path).ok()?;
            text.ends_with('\n').then(|| text.trim().to_owned())
        })
        .await
    }
}

/// What a script prints that gives a token.
pub fn token(token: &str) -> String {
    answer(&format!(r#""token":"{token}""#))
}

pub fn answer(status: &str) -> String {
    let head =
        r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status""#;
    format!("cat <<END\n{head}:{{{status}}}}}\nEND")
}

/// What a script prints that gives a token until some seconds from now.
pub fn token_for(token: &str, seconds: i64) -> String {
    let end = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
    answer(&format!(
        r#""token":"{token}","expirationTimestamp":"{end}""#
    ))
}

/// Waits for something that another process does.
pub async fn eventually<T>(what: &str, mut seen: impl FnMut() -> Option<T>) -> T {
    let seen = async {
        loop {
            if let Some(seen) = seen() {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let seen = tokio::time::timeout(Duration::from_secs(60), seen).await;
    seen.unwrap_or_else(|_| panic!("{what} in time"))
}

/// Whether a process runs; one that nobody has waited for yet does not.
pub fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat"));
    let state = |stat: String| stat.rsplit(')').next().map(|rest| rest.trim().to_owned());
    let state = stat.ok().and_then(state);
    state.is_some_and(|state| !state.starts_with('Z'))
}
