//! A step of a check: run with its output streamed, remembered for the table at the end.

use std::fmt::Write as _;
use std::io::{self, BufRead as _, BufReader, IsTerminal as _, Read, Write};
use std::process::{Child, Command, ExitCode, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// How a test that was left out begins its line; the test kit writes it.
const SKIPPED: &str = "SKIPPED:";

/// How a step ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed(String),
    Failed(String),
    Skipped(String),
}

/// All steps so far.
#[derive(Debug, Default)]
pub(crate) struct Report {
    steps: Vec<(String, Outcome, Duration)>,
    left_out: Vec<String>,
}

impl Report {
    /// Runs a step. One that could not even be tried has failed.
    pub(crate) fn step(&mut self, name: impl Into<String>, work: impl FnOnce() -> Result<Outcome>) {
        let name = name.into();
        eprintln!("\n=== {name}");
        let start = Instant::now();
        let outcome = work().unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
        match &outcome {
            Outcome::Passed(_) => {}
            Outcome::Failed(why) => eprintln!("=== {name} FAILED: {why}"),
            Outcome::Skipped(why) => {
                eprintln!("=== {name} SKIPPED: {why}");
                self.leave_out(format!("{name} ({why})"));
            }
        }
        self.steps.push((name, outcome, start.elapsed()));
    }

    /// Runs a command as a step.
    pub(crate) fn command(&mut self, name: impl Into<String>, command: &mut Command) {
        self.step(name, || Ok(stream(command, None)?.outcome()));
    }

    /// Runs tests as a step, and notes those that they left out.
    pub(crate) fn tests(&mut self, name: impl Into<String>, work: impl FnOnce() -> Result<Ended>) {
        let mut skipped = Vec::new();
        self.step(name, || {
            let ended = work()?;
            let outcome = ended.outcome_of_tests();
            skipped = ended.skipped;
            Ok(outcome)
        });
        for line in skipped {
            // Why, it has said itself.
            let test = line.split_once(": ").map_or(&*line, |(test, _)| test);
            self.leave_out(format!("test {test}"));
        }
    }

    /// Notes something that is left out; said once, at the end.
    pub(crate) fn leave_out(&mut self, what: String) {
        if !self.left_out.contains(&what) {
            self.left_out.push(what);
        }
    }

    /// Prints the table, what was left out, and the closing line.
    pub(crate) fn close(self) -> ExitCode {
        let (mut passed, mut failed, mut skipped) = (0, 0, 0);
        let width = self
            .steps
            .iter()
            .map(|(name, ..)| name.len())
            .max()
            .unwrap_or(0);
        let mut table = String::new();
        for (name, outcome, took) in &self.steps {
            let (count, word, note) = match outcome {
                Outcome::Passed(note) => (&mut passed, "passed", note),
                Outcome::Failed(note) => (&mut failed, "FAILED", note),
                Outcome::Skipped(note) => (&mut skipped, "skipped", note),
            };
            *count += 1;
            let seconds = took.as_secs_f32();
            // Writing to a string does not fail.
            let _ = writeln!(table, "{name:width$}  {word:7}  {seconds:7.1} s  {note}");
        }
        let left_out = match self.left_out.as_slice() {
            [] => "nothing".to_owned(),
            some => some.join("; "),
        };
        println!(
            "\n{table}\nleft out: {left_out}\n{passed} passed, {failed} failed, {skipped} skipped"
        );
        if failed == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

/// A command that has ended, or several.
#[derive(Debug)]
pub(crate) struct Ended {
    /// None where its time was up. Of several, that of one that failed.
    pub(crate) status: Option<ExitStatus>,
    /// What its tests said that they leave out.
    pub(crate) skipped: Vec<String>,
    /// The tests that it ran, as far as it said so.
    tests: Option<Tests>,
}

impl Ended {
    pub(crate) fn outcome(&self) -> Outcome {
        let tests = self.tests.map(|tests| {
            let skipped = self.skipped.len();
            // The test harness knows no skipping: to it they have passed.
            let passed = tests
                .passed
                .saturating_sub(u32::try_from(skipped).unwrap_or(u32::MAX));
            let Tests {
                failed, ignored, ..
            } = tests;
            format!("{passed} tests passed, {failed} failed, {ignored} ignored, {skipped} skipped")
        });
        match self.status {
            Some(status) if status.success() => Outcome::Passed(tests.unwrap_or_default()),
            Some(status) => Outcome::Failed(tests.unwrap_or_else(|| status.to_string())),
            None => Outcome::Failed("its time was up".to_owned()),
        }
    }

    /// The outcome where the tests are the point: a filter that finds none has gone stale.
    pub(crate) fn outcome_of_tests(&self) -> Outcome {
        let ran = self
            .tests
            .is_some_and(|tests| tests.passed + tests.failed > 0);
        match self.outcome() {
            Outcome::Passed(_) if !ran => Outcome::Failed("no test was run".to_owned()),
            outcome => outcome,
        }
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Tests {
    passed: u32,
    failed: u32,
    ignored: u32,
}

/// Runs a command without input, its output streamed, and killed with all that it started when its time is up.
pub(crate) fn stream(command: &mut Command, limit: Option<Duration>) -> Result<Ended> {
    eprintln!("$ {}", words(command));
    if io::stderr().is_terminal() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    if limit.is_some() {
        own_group(command);
    }
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("run {}", command.get_program().display()))?;
    let out = child
        .stdout
        .take()
        .map(|out| thread::spawn(|| copy(out, io::stdout())));
    let err = child
        .stderr
        .take()
        .map(|err| thread::spawn(|| copy(err, io::stderr())));
    let mut ended = Ended::with(wait(&mut child, limit)?);
    for lines in [out, err]
        .into_iter()
        .flatten()
        .filter_map(|copied| copied.join().ok())
        .flatten()
    {
        ended.note(&lines);
    }
    Ok(ended)
}

impl Ended {
    fn with(status: Option<ExitStatus>) -> Self {
        Self {
            status,
            skipped: Vec::new(),
            tests: None,
        }
    }

    /// What a command that was not streamed has said.
    pub(crate) fn of(output: &Output) -> Self {
        let mut ended = Self::with(Some(output.status));
        for stream in [&output.stdout, &output.stderr] {
            let text = String::from_utf8_lossy(stream);
            text.lines().for_each(|line| ended.note(line));
        }
        ended
    }

    /// Both together: failed if one of them has.
    pub(crate) fn join(mut self, other: Self) -> Self {
        if self.status.is_some_and(|status| status.success()) {
            self.status = other.status;
        }
        self.skipped.extend(other.skipped);
        if let Some(tests) = other.tests {
            self.add(tests);
        }
        self
    }

    fn add(&mut self, tests: Tests) {
        let sum = self.tests.get_or_insert_default();
        sum.passed += tests.passed;
        sum.failed += tests.failed;
        sum.ignored += tests.ignored;
    }

    fn note(&mut self, line: &str) {
        if let Some((_, test)) = line.split_once(SKIPPED) {
            self.skipped.push(test.trim().to_owned());
        } else if let Some(tests) = test_result(line) {
            self.add(tests);
        }
    }
}

fn test_result(line: &str) -> Option<Tests> {
    let (_, counts) = line.split_once("test result: ")?.1.split_once(". ")?;
    let mut tests = Tests::default();
    for count in counts.split("; ") {
        let (number, word) = count.split_once(' ')?;
        match word {
            "passed" => tests.passed = number.parse().ok()?,
            "failed" => tests.failed = number.parse().ok()?,
            "ignored" => tests.ignored = number.parse().ok()?,
            _ => {}
        }
    }
    Some(tests)
}

/// Copies line by line, and returns the lines that say something about tests.
fn copy(from: impl Read, mut to: impl Write) -> Vec<String> {
    let mut from = BufReader::new(from);
    let mut noted = Vec::new();
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        // A reader of ours that went away must not stop the command.
        let _ = to.write_all(&line).and_then(|()| to.flush());
        let text = String::from_utf8_lossy(&line);
        if text.contains(SKIPPED) || text.contains("test result: ") {
            noted.push(text.into_owned());
        }
        line.clear();
    }
    noted
}

fn wait(child: &mut Child, limit: Option<Duration>) -> Result<Option<ExitStatus>> {
    let Some(limit) = limit else {
        return Ok(Some(child.wait()?));
    };
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            kill_group(child);
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(50));
    }
}

#[cfg(unix)]
fn own_group(command: &mut Command) {
    std::os::unix::process::CommandExt::process_group(command, 0);
}

#[cfg(not(unix))]
fn own_group(_: &mut Command) {}

/// `cargo run` is killed with the program that it runs.
fn kill_group(child: &mut Child) {
    if cfg!(unix) {
        let group = format!("-{}", child.id());
        // Where there is no such command, at least the child itself goes.
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
    }
    let _ = child.kill();
}

/// As one would type it.
pub(crate) fn words(command: &Command) -> String {
    let variables = command
        .get_envs()
        .filter_map(|(name, value)| Some(format!("{}={}", name.display(), value?.display())));
    let program = std::iter::once(command.get_program()).map(|word| word.display().to_string());
    let arguments = command.get_args().map(|word| word.display().to_string());
    variables
        .chain(program)
        .chain(arguments)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_whose_time_is_up_is_killed_with_what_it_started() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo started; sleep 600 & wait"]);
        // Would not return while the sleeping one holds the pipe.
        let ended = stream(&mut command, Some(Duration::from_millis(300))).unwrap();
        assert_eq!(
            ended.outcome(),
            Outcome::Failed("its time was up".to_owned())
        );
    }

    #[test]
    fn tests_that_skip_are_counted_and_named() {
        let output = "SKIPPED: a: no b\nSKIPPING is not it\n\
            test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s\n\
            test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s\n";
        let mut copied = Vec::new();
        let noted = copy(output.as_bytes(), &mut copied);
        assert_eq!(copied, output.as_bytes());
        let mut ended = Ended::with(Some(ExitStatus::default()));
        for line in &noted {
            ended.note(line);
        }
        assert_eq!(ended.skipped, ["a: no b"]);
        let note = "4 tests passed, 0 failed, 1 ignored, 1 skipped";
        assert_eq!(ended.outcome_of_tests(), Outcome::Passed(note.to_owned()));
    }

    #[test]
    fn of_several_one_that_failed_is_enough() {
        // Not streamed: what they print must not be taken for results of this test.
        let run = |line| Ended::of(&Command::new("sh").args(["-c", line]).output().unwrap());
        let all = run("echo 'test result: ok. 3 passed; 0 failed; 0 ignored'")
            .join(run(
                "echo 'test result: FAILED. 1 passed; 1 failed; 0 ignored'; exit 101",
            ))
            .join(run(
                "echo SKIPPED: a: no b; echo 'test result: ok. 2 passed; 0 failed; 0 ignored'",
            ));
        let note = "5 tests passed, 1 failed, 0 ignored, 1 skipped";
        assert_eq!(all.outcome_of_tests(), Outcome::Failed(note.to_owned()));
    }

    #[test]
    fn a_command_that_should_run_tests_and_ran_none_has_failed() {
        let mut ended = Ended::with(Some(ExitStatus::default()));
        ended.note("test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out");
        let none = Outcome::Failed("no test was run".to_owned());
        assert_eq!(ended.outcome_of_tests(), none);
    }
}
