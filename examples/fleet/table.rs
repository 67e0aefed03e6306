//! The states of the fleet as `kubectl` would print them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use clustercache::{
    Changes, ClusterCache, ClusterKey, ClusterState, Event, Generation, Phase, Verdict,
};
use clustercache_client::ClientExt;
use console::{Style, truncate_str};
use futures_util::StreamExt;
use tokio::{sync::Notify, task::JoinHandle};

use crate::screen::Screen;

/// A row is news for so long: what is not news need not be on a small terminal.
const NEWS: Duration = Duration::from_secs(8);

/// Lines above the table that should not be pushed off a terminal.
const STORY: usize = 12;

/// Follows the cache's events onto the screen.
pub(crate) struct Rows {
    cache: ClusterCache,
    screen: Screen,
    versions: Versions,
    /// A version came.
    told: Arc<Notify>,
}

/// What each cluster said that it is, and to which connection.
type Versions = Arc<Mutex<BTreeMap<ClusterKey, (Option<Generation>, String)>>>;

impl Rows {
    pub(crate) fn follow(cache: &ClusterCache, screen: &Screen) -> JoinHandle<()> {
        let rows = Self {
            cache: cache.clone(),
            screen: screen.clone(),
            versions: Versions::default(),
            told: Arc::default(),
        };
        tokio::spawn(rows.run())
    }

    async fn run(self) {
        let mut events = self.cache.subscribe();
        let mut clock = tokio::time::interval(Duration::from_millis(250));
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Some(event) => self.reconcile(event),
                    None => return,
                },
                () = self.told.notified() => {}
                _ = clock.tick() => if self.screen.is_live() {
                    self.show();
                },
            }
            // On a terminal the time goes on. Elsewhere what changed is a line, and two changes are two.
            if !self.screen.is_live() {
                self.show();
            }
        }
    }

    fn show(&self) {
        let now = self.cache.now();
        // Without an engine there is nothing to show.
        let states = self.cache.states().unwrap_or_default();
        let rows = states.iter().map(|state| self.row(state, now)).collect();
        self.screen.show(rows);
    }

    /// What a controller does with an event. Here: it asks a cluster that has come to be connected for its version.
    fn reconcile(&self, event: Event) {
        let Event::Cluster { key, changes, .. } = event else {
            return;
        };
        // Not connected, after all: there is another event when it is.
        let Ok(client) = self.cache.client(&key) else {
            return;
        };
        if !changes.contains(Changes::CONNECTED) {
            return;
        }
        let (cache, versions) = (self.cache.clone(), Arc::clone(&self.versions));
        let told = Arc::clone(&self.told);
        tokio::spawn(async move {
            let generation = cache.state(&key).ok().and_then(|state| state.generation);
            let version = client.apiserver_version().await;
            let version = version.map_or_else(|_| String::new(), |version| version.git_version);
            let mut versions = versions.lock().unwrap_or_else(PoisonError::into_inner);
            versions.insert(key, (generation, version));
            told.notify_one();
        });
    }

    fn row(&self, state: &ClusterState, now: SystemTime) -> Row {
        let versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        let version = versions
            .get(&state.key)
            .filter(|(generation, _)| *generation == state.generation);
        let access = state.access.as_ref();
        let since = now.duration_since(state.since).unwrap_or_default();
        Row {
            order: order(&state.key.to_string()),
            name: state.key.shown().to_string().trim_start_matches('/').into(),
            status: status(state),
            age: age(since),
            version: version.map_or_else(String::new, |(_, version)| version.clone()),
            connection: state.generation.map_or_else(String::new, |generation| {
                generation.to_string().replace("generation ", "")
            }),
            credential: access.map_or_else(String::new, |access| {
                access.credential.to_string()[..6].into()
            }),
            endpoint: access.map_or_else(String::new, |access| {
                let url = access.endpoint.trim_end_matches('/');
                url.trim_start_matches("https://").into()
            }),
            reason: reason(state, now),
            waits: version.is_none() && state.phase.is_connected(),
            news: since < NEWS || state.health != Verdict::Healthy,
        }
    }
}

/// `fake-7` before `fake-10`.
fn order(name: &str) -> String {
    let digits = name.trim_start_matches(|letter: char| !letter.is_ascii_digit());
    match digits.parse::<u32>() {
        Ok(number) => format!("{}{number:010}", &name[..name.len() - digits.len()]),
        Err(_) => name.into(),
    }
}

fn status(state: &ClusterState) -> String {
    let phase = match state.phase {
        Phase::NotOwned => "NotOwned",
        Phase::Gated => "Gated",
        Phase::Refused => "Refused",
        Phase::Connecting => "Connecting",
        Phase::Connected => "Connected",
        Phase::Degraded => "Degraded",
        Phase::Down => "Down",
        Phase::Removed => "Removed",
        _ => "Unknown",
    };
    let more = [
        (state.removing, "Removing"),
        (state.held_by_brake, "Held"),
        (state.replacing, "Replacing"),
        (state.health == Verdict::Suspect, "Suspect"),
        (state.not_ready.is_some(), "NotReady"),
    ];
    let more = more
        .iter()
        .find(|(is, _)| *is && state.phase.is_connected());
    more.map_or_else(|| phase.into(), |(_, more)| format!("{phase},{more}"))
}

fn reason(state: &ClusterState, now: SystemTime) -> String {
    let said = [&state.refused, &state.gate, &state.not_ready];
    if let Some(why) = said.into_iter().flatten().next() {
        return why.to_string();
    }
    let healthy = state.phase == Phase::Connected && state.health != Verdict::Suspect;
    let Some(error) = state.last_error.as_ref().filter(|_| !healthy) else {
        return String::new();
    };
    let wait = state
        .next_attempt
        .and_then(|at| at.duration_since(now).ok());
    let next = wait.map_or_else(String::new, |wait| format!(", next try in {}", age(wait)));
    format!("{}: {}{next}", error.stage, error.message)
}

/// As `kubectl` prints it.
fn age(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m{}s", seconds / 60, seconds % 60),
        7_200..172_800 => format!("{}h{}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[derive(Clone)]
pub(crate) struct Row {
    pub(crate) order: String,
    name: String,
    status: String,
    age: String,
    version: String,
    connection: String,
    credential: String,
    endpoint: String,
    reason: String,
    /// For its version, which comes soon.
    pub(crate) waits: bool,
    news: bool,
}

impl Row {
    /// Time alone is no news.
    pub(crate) fn says_the_same(&self, other: &Self) -> bool {
        let timeless = |row: &Self| {
            let reason = row.reason.split(", next try").next().map(String::from);
            let row = row.clone();
            (
                row.status,
                row.version,
                row.connection,
                row.credential,
                row.endpoint,
                reason,
            )
        };
        timeless(self) == timeless(other)
    }

    pub(crate) fn removed(&self) -> Self {
        Self {
            status: "Removed".into(),
            age: "0s".into(),
            version: String::new(),
            connection: String::new(),
            reason: String::new(),
            ..self.clone()
        }
    }

    fn cells(&self) -> [&str; COLUMNS.len()] {
        [
            &self.name,
            &self.status,
            &self.age,
            &self.version,
            &self.connection,
            &self.credential,
            &self.endpoint,
            &self.reason,
        ]
    }

    fn style(&self) -> Style {
        let style = Style::new();
        match self.status.as_str() {
            "Connected" => style.green(),
            "Down" | "Refused" | "Removed" => style.red(),
            _ => style.yellow(),
        }
    }
}

const COLUMNS: [&str; 8] = [
    "NAME", "STATUS", "AGE", "VERSION", "CONN", "TOKEN", "ENDPOINT", "REASON",
];

/// How wide each column is.
pub(crate) struct Columns([usize; COLUMNS.len()]);

impl Columns {
    pub(crate) fn of<'a>(rows: impl Iterator<Item = &'a Row>) -> Self {
        let mut widths = COLUMNS.map(str::len);
        // What it may become, so that the columns stand still.
        widths[1] = "Connected,Replacing".len();
        widths[2] = widths[2].max(5);
        widths[3] = widths[3].max(8);
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(row.cells()) {
                *width = (*width).max(cell.chars().count());
            }
        }
        Self(widths)
    }

    pub(crate) fn header(&self) -> String {
        self.join(COLUMNS, &Style::new())
    }

    pub(crate) fn line(&self, row: &Row) -> String {
        self.join(row.cells(), &row.style())
    }

    fn join(&self, cells: [&str; COLUMNS.len()], status: &Style) -> String {
        let mut line = String::new();
        for (column, (cell, width)) in cells.into_iter().zip(self.0).enumerate() {
            let padded = format!("{cell:<width$}   ");
            match column {
                1 => line.push_str(&status.apply_to(padded).to_string()),
                7 => line.push_str(cell),
                _ => line.push_str(&padded),
            }
        }
        line.trim_end().into()
    }
}

/// As much of the table as there is room for: what is news first, and what it leaves out in a line of its own.
pub(crate) fn fitted(rows: &BTreeMap<String, Row>, height: usize, width: usize) -> Vec<String> {
    let columns = Columns::of(rows.values());
    let room = height.saturating_sub(STORY + 3).max(5);
    let mut order: Vec<&Row> = rows.values().collect();
    order.sort_by_key(|row| !row.news);
    order.truncate(room);
    order.sort_by(|a, b| a.order.cmp(&b.order));
    let connected = rows
        .values()
        .filter(|row| row.status.starts_with("Connected"));
    let mut lines = vec![columns.header()];
    lines.extend(order.iter().map(|row| columns.line(row)));
    lines.push(format!(
        "{} clusters, {} connected{}",
        rows.len(),
        connected.count(),
        match rows.len() - order.len() {
            0 => String::new(),
            more => format!("; {more} more rows are not shown"),
        }
    ));
    // A line that wraps could not be drawn over.
    lines
        .iter()
        .map(|line| truncate_str(line, width.saturating_sub(1), "…").into_owned())
        .collect()
}
