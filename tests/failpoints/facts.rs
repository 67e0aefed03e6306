//! What was done to each value, and the model that it is held against (rule 6): each is torn down once, or is abandoned and counted, in the
//! reverse of the order in which they came up, and all are dropped in that order.

use clustercache::{Generation, TeardownReason};

/// One value of one provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whose {
    pub(crate) slot: usize,
    pub(crate) generation: Generation,
    pub(crate) incarnation: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fact {
    /// Its init returned it.
    Up(Whose),
    /// It has gone bad, or is not sure to take an access: it may go alone, with what is built on it.
    Bad(Whose),
    Teardown(Whose, TeardownReason),
    /// Its teardown came to its end, or panicked.
    TornDown(Whose),
    /// Its teardown was cancelled.
    CutShort(Whose),
    Dropped(Whose),
}

/// The parts that each part requires.
pub(crate) const REQUIRES: [&[usize]; 4] = [&[], &[0], &[0], &[1, 2]];

pub(crate) fn requires(slot: usize, base: usize) -> bool {
    REQUIRES[slot]
        .iter()
        .any(|on| *on == base || requires(*on, base))
}

/// Holds the facts against the model. Says how many values were not torn down.
pub(crate) fn judge(facts: &[Fact]) -> Result<u64, String> {
    let mut values: Vec<Life> = Vec::new();
    let mut bad: Vec<Whose> = Vec::new();
    for fact in facts {
        if let Fact::Up(whose) = *fact {
            if values.iter().any(|life| life.whose == whose) {
                return Err(format!("came up twice: {whose:?}"));
            }
            values.push(Life::new(whose));
            continue;
        }
        let whose = fact.whose();
        if let Fact::Bad(_) = fact {
            bad.push(whose);
            continue;
        }
        let alone = goes_alone(*fact, &values, &bad);
        let at = values.iter().position(|life| life.whose == whose);
        let at = at.ok_or_else(|| format!("never up: {fact:?}"))?;
        let (life, later) = values[at..].split_first_mut().expect("it is there");
        life.take(*fact)?;
        let own = |other: &&Life| other.whose.generation == whose.generation;
        let later = || later.iter().filter(own);
        let on_it = |other: &&Life| requires(other.whose.slot, whose.slot);
        let early = match *fact {
            // With what requires it; whatever else came later stays.
            Fact::Teardown(..) if alone => later().filter(on_it).find(|other| other.is_open()),
            Fact::Teardown(..) => later().find(|other| other.is_open()),
            Fact::Dropped(_) if life.began || later().filter(on_it).any(|other| other.replaced) => {
                later().filter(on_it).find(|other| !other.dropped)
            }
            Fact::Dropped(_) => later().find(|other| !other.dropped),
            _ => None,
        };
        if let Some(other) = early {
            return Err(format!("{fact:?} while there is {:?}", other.whose));
        }
    }
    match values.iter().find(|life| !life.dropped) {
        Some(left) => Err(format!("never dropped: {:?}", left.whose)),
        None => Ok(values.iter().filter(|life| !life.torn_down).count() as u64),
    }
}

/// Whether a part goes without its connection: because it has gone bad, or what it is built on.
fn goes_alone(fact: Fact, values: &[Life], bad: &[Whose]) -> bool {
    let Fact::Teardown(whose, TeardownReason::Replaced) = fact else {
        return false;
    };
    let base = |life: &&Life| {
        let of = life.whose;
        let below = of.slot == whose.slot || requires(whose.slot, of.slot);
        of.generation == whose.generation && below && life.is_open()
    };
    let mut bases = values.iter().filter(base);
    bases.any(|life| bad.contains(&life.whose))
}

// Facts that hold or do not, each by itself: no states of one machine.
#[allow(clippy::struct_excessive_bools)]
struct Life {
    whose: Whose,
    began: bool,
    /// It was torn down with the part that it was on.
    replaced: bool,
    ended: bool,
    torn_down: bool,
    dropped: bool,
}

impl Life {
    fn new(whose: Whose) -> Self {
        Self {
            whose,
            began: false,
            replaced: false,
            ended: false,
            torn_down: false,
            dropped: false,
        }
    }

    fn is_open(&self) -> bool {
        !self.ended && !self.dropped
    }

    fn take(&mut self, fact: Fact) -> Result<(), String> {
        let (flag, may) = match fact {
            Fact::Up(_) | Fact::Bad(_) => return Ok(()),
            Fact::Teardown(_, reason) => {
                self.replaced = reason == TeardownReason::Replaced;
                (&mut self.began, !self.dropped)
            }
            Fact::TornDown(_) => {
                self.torn_down = true;
                (&mut self.ended, self.began)
            }
            Fact::CutShort(_) => (&mut self.ended, self.began),
            Fact::Dropped(_) => (&mut self.dropped, self.ended || !self.began),
        };
        if std::mem::replace(flag, true) || !may {
            return Err(format!("twice, or out of turn: {fact:?}"));
        }
        Ok(())
    }
}

impl Fact {
    fn whose(&self) -> Whose {
        match *self {
            Self::Up(whose)
            | Self::Bad(whose)
            | Self::Teardown(whose, _)
            | Self::TornDown(whose)
            | Self::CutShort(whose)
            | Self::Dropped(whose) => whose,
        }
    }
}
