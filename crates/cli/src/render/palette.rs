//! Colours, where the output is a terminal that wants them.

use std::io::IsTerminal;

/// What a piece of text means; the palette chooses its colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Nothing special.
    #[default]
    Plain,
    /// Less important than its surroundings.
    Dim,
    /// A heading.
    Strong,
    /// As hoped.
    Good,
    /// Waiting, or worth a look.
    Warn,
    /// Failed.
    Bad,
}

/// Whether and how text is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Palette {
    /// No escape sequences at all.
    None,
    /// The sixteen colours that every terminal has.
    Ansi,
}

impl Palette {
    /// Colours if standard output is a terminal and `NO_COLOR` is not set.
    pub fn of_stdout() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        if std::io::stdout().is_terminal() && !refused && !dumb { Self::Ansi } else { Self::None }
    }

    /// `text` in the colour of `tone`.
    pub fn paint(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Plain => return text.to_owned(),
            Tone::Dim => "2",
            Tone::Strong => "1",
            Tone::Good => "32",
            Tone::Warn => "33",
            Tone::Bad => "31",
        };
        match self {
            Self::None => text.to_owned(),
            Self::Ansi => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }
}
