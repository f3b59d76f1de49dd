//! Spans of time as people read them.

/// `nanos` as `0.42s`, `12.3s`, `3m05s`, `2h04m` or `3d02h`: never more than six characters before 100 days.
pub fn span(nanos: i64) -> String {
    let nanos = nanos.max(0);
    let seconds = nanos / 1_000_000_000;
    match seconds {
        0..10 => format!("{:.2}s", nanos as f64 / 1e9),
        10..60 => format!("{:.1}s", nanos as f64 / 1e9),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// An age in whole units, as tables of objects show it: `5s`, `3m`, `2h`, `9d`.
pub fn age(nanos: i64) -> String {
    let seconds = nanos.max(0) / 1_000_000_000;
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Nanoseconds as a short figure with the unit that suits it.
pub fn fine(nanos: i64) -> String {
    match nanos {
        ..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => format!("{:.1} µs", nanos as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", nanos as f64 / 1e6),
        _ => format!("{:.3} s", nanos as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_grow_coarser() {
        let seconds = |s: f64| span((s * 1e9) as i64);
        assert_eq!(seconds(0.0), "0.00s");
        assert_eq!(seconds(9.99), "9.99s");
        assert_eq!(seconds(12.34), "12.3s");
        assert_eq!(seconds(185.0), "3m05s");
        assert_eq!(seconds(7_440.0), "2h04m");
        assert_eq!(seconds(266_400.0), "3d02h");
        assert_eq!(span(-5), "0.00s");
    }

    #[test]
    fn ages_are_whole() {
        assert_eq!(age(119_999_999_999), "119s");
        assert_eq!(age(120_000_000_000), "2m");
        assert_eq!(age(7_200_000_000_000), "2h");
    }
}
