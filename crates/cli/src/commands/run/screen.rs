//! A piece of a terminal that is drawn again in place.

use std::io::{self, Write};

use super::frame::Size;

/// What is taken as the size of a terminal that does not tell.
const SIZE_UNKNOWN: Size = Size { columns: 80, rows: 24 };

/// The size of the terminal on standard output.
pub fn terminal_size() -> Size {
    match terminal_size::terminal_size() {
        Some((columns, rows)) => Size { columns: columns.0.into(), rows: rows.0.into() },
        None => SIZE_UNKNOWN,
    }
}

/// Lines on standard output that the next drawing replaces. The cursor comes back when it is dropped.
#[derive(Debug, Default)]
pub struct Screen {
    lines_drawn: usize,
    cursor_hidden: bool,
}

impl Screen {
    /// Replaces what was drawn before by `lines`. Each must fit the terminal's width.
    pub fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        let mut text = String::new();
        if !self.cursor_hidden {
            text.push_str("\x1b[?25l");
            self.cursor_hidden = true;
        }
        // One write for the whole frame, so that nobody sees half of it.
        text.push_str(&self.back_to_start());
        for line in lines {
            text.push_str(line);
            text.push_str("\x1b[K\n");
        }
        text.push_str("\x1b[J");
        self.lines_drawn = lines.len();
        write_out(&text)
    }

    /// Removes what was drawn.
    pub fn clear(&mut self) -> io::Result<()> {
        let text = format!("{}\x1b[J", self.back_to_start());
        self.lines_drawn = 0;
        write_out(&text)
    }

    fn back_to_start(&self) -> String {
        match self.lines_drawn {
            0 => "\r".to_owned(),
            lines => format!("\r\x1b[{lines}A"),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.cursor_hidden {
            // Nothing can be done about a terminal that went away.
            let _ = write_out("\x1b[?25h");
        }
    }
}

fn write_out(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
