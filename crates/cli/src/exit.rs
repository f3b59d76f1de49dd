//! How a command ends: its exit code, and the one message that a person reads when it fails.

use std::fmt;
use std::process::ExitCode;

/// What `gangway --help` says about exit codes.
pub const EXIT_CODES_HELP: &str = "\
Exit codes:
  0    done; for `run`: every Job succeeded
  1    a Job failed
  2    bad usage or bad input, or something that the command needs is not there
  3    something can never start; the explanation of each is printed
  4    not supported yet
  5    a promise of Gangway was broken (a bug, please report it)
  6    `doctor` found a problem
  130  interrupted";

/// The exit code of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Success,
    /// A Job failed.
    JobFailed,
    /// Bad usage, bad input, or something that is needed is not there.
    BadInput,
    /// Something can never start.
    NeverStarts,
    /// Not supported yet.
    Unsupported,
    /// A promise of Gangway was broken.
    Broken,
    /// Something that was looked at does not work.
    ProblemsFound,
    /// Somebody pressed Ctrl-C.
    Interrupted,
}

impl Exit {
    /// The number that the shell sees.
    pub const fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::JobFailed => 1,
            Self::BadInput => 2,
            Self::NeverStarts => 3,
            Self::Unsupported => 4,
            Self::Broken => 5,
            Self::ProblemsFound => 6,
            Self::Interrupted => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Why a command could not do what it was asked: what, where, why, and what to try.
#[derive(Debug)]
pub struct Failure {
    /// The code to exit with.
    pub exit: Exit,
    /// The message, without the word "error".
    pub message: String,
    /// What to try, as a sentence; may be empty.
    pub advice: String,
}

impl Failure {
    /// Bad usage or input, or something needed that is not there.
    pub fn bad_input(message: impl fmt::Display) -> Self {
        Self { exit: Exit::BadInput, message: message.to_string(), advice: String::new() }
    }

    /// Something that Gangway does not do.
    pub fn unsupported(message: impl fmt::Display) -> Self {
        Self { exit: Exit::Unsupported, message: message.to_string(), advice: String::new() }
    }

    /// Something that must not happen happened.
    pub fn broken(message: impl fmt::Display) -> Self {
        Self { exit: Exit::Broken, message: message.to_string(), advice: String::new() }
    }

    /// Adds what to try.
    pub fn try_this(mut self, advice: impl fmt::Display) -> Self {
        self.advice = advice.to_string();
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if !self.advice.is_empty() {
            write!(f, "\ntry: {}", self.advice)?;
        }
        Ok(())
    }
}

/// What a command returns.
pub type Outcome = Result<Exit, Failure>;
