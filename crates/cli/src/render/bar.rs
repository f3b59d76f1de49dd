//! Bars that show a share of a whole.

/// The eighths of a block, from none to almost all.
const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// A bar of `columns` that is filled to `used` of `total`; full if `total` is zero and something is used.
pub fn bar(used: i64, total: i64, columns: usize) -> String {
    let share = match (used, total) {
        (..=0, _) => 0.0,
        (_, ..=0) => 1.0,
        _ => (used as f64 / total as f64).min(1.0),
    };
    let eighths = (share * (columns * 8) as f64).round() as usize;
    let (full, rest) = (eighths / 8, eighths % 8);
    let mut text = "█".repeat(full);
    if rest > 0 {
        text.push(EIGHTHS[rest]);
    }
    let filled = full + usize::from(rest > 0);
    text.push_str(&"·".repeat(columns - filled));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_always_has_its_width() {
        for used in -1..12 {
            assert_eq!(bar(used, 10, 8).chars().count(), 8, "{used}");
        }
        assert_eq!(bar(5, 10, 4), "██··");
        assert_eq!(bar(0, 0, 4), "····");
        assert_eq!(bar(1, 0, 4), "████");
        assert_eq!(bar(i64::MAX, i64::MAX, 2), "██");
    }
}
