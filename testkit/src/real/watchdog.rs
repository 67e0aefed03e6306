//! A shell that outlives this process by a moment, and takes its servers along.
//!
//! A test that is killed runs no `Drop`. The shell reads from a pipe that only this process holds: when the pipe ends
//! without a word, it kills the group of the servers and removes their folder.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::RealError;

const SCRIPT: &str = r#"
group=
while read -r word argument; do
    case $word in
        group) group=$argument ;;
        quit) exit 0 ;;
    esac
done
[ -z "$group" ] || kill -s KILL -- "-$group"
rm -rf -- "$1"
"#;

#[derive(Debug)]
pub(super) struct Watchdog(Child);

impl Watchdog {
    /// Starts to watch over a folder.
    pub(super) fn over(folder: &Path) -> Result<Self, RealError> {
        Command::new("/bin/sh")
            .args(["-c", SCRIPT, "watchdog"])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A group of its own, so that Ctrl-C does not end it before its work.
            .process_group(0)
            .spawn()
            .map(Self)
            .map_err(RealError::io("start /bin/sh"))
    }

    /// Says which process group is to be killed.
    pub(super) fn watch(&mut self, group: u32) -> Result<(), RealError> {
        self.say(&format!("group {group}\n"))
            .map_err(RealError::io("write to the watchdog"))
    }

    fn say(&mut self, line: &str) -> std::io::Result<()> {
        match &mut self.0.stdin {
            Some(pipe) => pipe.write_all(line.as_bytes()),
            None => Ok(()),
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // Where it is gone already there is nobody to tell.
        let _ = self.say("quit\n");
        let _ = self.0.wait();
    }
}
