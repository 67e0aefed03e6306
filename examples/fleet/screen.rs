//! Where lines and the table go: on a terminal the table is drawn over itself below the lines; else only rows that changed are printed.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use console::{Term, style};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::Instant;

use crate::table::{self, Row};

#[derive(Clone)]
pub(crate) struct Screen {
    begun: Instant,
    live: bool,
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    term: Term,
    /// The rows as they were last shown.
    rows: BTreeMap<String, Row>,
    shown: bool,
    /// Lines of the table that stand on the terminal.
    drawn: usize,
}

impl Screen {
    pub(crate) fn new() -> Self {
        let term = Term::buffered_stdout();
        Self {
            begun: Instant::now(),
            live: term.is_term(),
            shared: Arc::new(Mutex::new(Shared {
                term,
                rows: BTreeMap::new(),
                shown: false,
                drawn: 0,
            })),
        }
    }

    /// Whether it is a terminal, where the time in a table goes on.
    pub(crate) fn is_live(&self) -> bool {
        self.live
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A line that stays.
    pub(crate) fn say(&self, line: &str) {
        let seconds = self.begun.elapsed().as_secs_f32();
        let line = format!(
            "{} {}",
            style(format!("{seconds:>5.1} s ")).dim(),
            style(line).bold()
        );
        // Nobody reads any more: nothing to be done about it.
        let _ = self.lock().say(&line);
    }

    /// The rows as they are now.
    pub(crate) fn show(&self, rows: Vec<Row>) {
        let _ = if self.live {
            self.lock().draw(rows)
        } else {
            self.lock().print(rows)
        };
    }

    /// A bar for something that has so many steps; without a terminal, a line now and then.
    pub(crate) fn progress(&self, of: usize, what: &'static str) -> Progress {
        let bar = self.live.then(|| {
            let style =
                ProgressStyle::with_template("        {bar:30.green}  {pos} of {len} {msg}");
            let target = ProgressDrawTarget::stdout();
            ProgressBar::with_draw_target(Some(of as u64), target)
                .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
                .with_message(what)
        });
        Progress {
            screen: self.clone(),
            bar,
            of,
            what,
            said: 0,
        }
    }
}

pub(crate) struct Progress {
    screen: Screen,
    bar: Option<ProgressBar>,
    of: usize,
    what: &'static str,
    said: usize,
}

impl Progress {
    pub(crate) fn at(&mut self, done: usize) {
        let Self { of, what, .. } = *self;
        match &self.bar {
            Some(bar) => bar.set_position(done as u64),
            None if done / 10 > self.said => {
                self.said = done / 10;
                self.screen.say(&format!("{done} of {of} {what}"));
            }
            None => {}
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Shared {
    fn say(&mut self, line: &str) -> io::Result<()> {
        self.clear()?;
        self.term.write_line(line)?;
        self.redraw()?;
        self.term.flush()
    }

    fn clear(&mut self) -> io::Result<()> {
        self.term.clear_last_lines(std::mem::take(&mut self.drawn))
    }

    fn draw(&mut self, rows: Vec<Row>) -> io::Result<()> {
        self.shown = true;
        self.rows = by_name(rows);
        self.clear()?;
        self.redraw()?;
        self.term.flush()
    }

    fn redraw(&mut self) -> io::Result<()> {
        if !self.term.is_term() || !self.shown {
            return Ok(());
        }
        let (height, width) = self.term.size();
        let lines = table::fitted(&self.rows, height.into(), width.into());
        for line in &lines {
            self.term.write_line(line)?;
        }
        self.drawn = lines.len();
        Ok(())
    }

    /// The whole table once, then what changed, as `kubectl get --watch` does.
    fn print(&mut self, rows: Vec<Row>) -> io::Result<()> {
        if !self.shown && rows.iter().any(|row| row.waits) {
            return Ok(());
        }
        let rows = by_name(rows);
        let columns = table::Columns::of(rows.values());
        if !std::mem::replace(&mut self.shown, true) {
            self.term.write_line(&columns.header())?;
        }
        let old = std::mem::take(&mut self.rows);
        for (name, row) in &rows {
            let before = old.get(name);
            if before.is_some_and(|before| row.waits || before.says_the_same(row)) {
                self.rows
                    .extend(before.map(|before| (name.clone(), before.clone())));
            } else {
                self.term.write_line(&columns.line(row))?;
                self.rows.insert(name.clone(), row.clone());
            }
        }
        for (_, row) in old.iter().filter(|(name, _)| !rows.contains_key(*name)) {
            self.term.write_line(&columns.line(&row.removed()))?;
        }
        self.term.flush()
    }
}

fn by_name(rows: Vec<Row>) -> BTreeMap<String, Row> {
    rows.into_iter()
        .map(|row| (row.order.clone(), row))
        .collect()
}
