//! What a layout gave up for small files and updates, as text.

use reorder_layout::Traded;
use reorder_layout::compression::{CurvePoint, Trade, Trades};
use reorder_layout::previous::PreviousTrade;
use reorder_relocate::RelocateOptions;
use reorder_report::table::grouped;

/// Lines about what was asked for; none where nothing was.
pub(crate) fn text(traded: &Traded) -> String {
    let compression = traded.trades.as_ref().map(compression_text);
    let previous = traded.previous.as_ref().map(|trade| previous_line(trade) + "\n");
    compression.into_iter().chain(previous).collect()
}

/// What was chosen, a sentence for each thing that was asked for.
pub(crate) fn choices(traded: &Traded) -> impl Iterator<Item = String> {
    let compression =
        traded.trades.as_ref().map(|trades| format!("compression: {}", sentence(&trades.chosen)));
    compression.into_iter().chain(traded.previous.as_ref().map(previous_line))
}

/// `options` for a layout that traded so much: a file that is to be small has sorted unwind entries.
pub(crate) fn relocate_options(traded: &Traded, options: RelocateOptions) -> RelocateOptions {
    let sort_unwind_entries = options.sort_unwind_entries || traded.trades.is_some();
    RelocateOptions { sort_unwind_entries, ..options }
}

/// The choice, and what other budgets would give.
fn compression_text(trades: &Trades) -> String {
    let mut text = format!("compression: {}\n", sentence(&trades.chosen));
    if trades.curve.len() < 2 {
        text.push_str("--effort thorough prints what other budgets give\n");
        return text;
    }
    text.push_str("budget  more pages  compressed bytes  order of functions that no trace ran (figures are estimates)\n");
    for CurvePoint { budget, trade } in &trades.curve {
        text.push_str(&format!(
            "{:>6}  {:>10}  {:>16}  {}\n",
            budget.to_string(),
            percent(trade.more_permille),
            signed(trade.compressed_bytes),
            tail_order(trade)
        ));
    }
    text
}

/// What closeness to the last release costs.
fn previous_line(trade: &PreviousTrade) -> String {
    format!(
        "previous layout: {} of its pages keep 80 % of their functions, {} without --previous; {} more pages of recorded startups",
        percent(trade.kept_permille),
        percent(trade.kept_permille_without),
        percent(trade.more_permille),
    )
}

fn sentence(trade: &Trade) -> String {
    match trade.tail_order {
        "pages" => "the layout by pages stays: no other order within the budget compresses better".to_owned(),
        _ => format!(
            "{}: about {} bytes for {} more pages of new startups (estimates)",
            tail_order(trade),
            signed(trade.compressed_bytes),
            percent(trade.more_permille)
        ),
    }
}

fn tail_order(trade: &Trade) -> String {
    match (trade.tail_order, trade.min_shared_bytes) {
        ("content", Some(bytes)) => {
            format!("by content, where functions share at least {} bytes", grouped(bytes.into()))
        }
        ("content-alone", _) => "by content alone".to_owned(),
        ("link", _) => "as the linker placed them".to_owned(),
        _ => "by pages".to_owned(),
    }
}

fn percent(permille: u64) -> String {
    format!("{}.{} %", permille / 10, permille % 10)
}

fn signed(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "+" };
    format!("{sign}{}", grouped(bytes.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use reorder_layout::compression::Budget;

    #[test]
    fn each_budget_is_a_line() {
        let trade = |tail_order, min_shared_bytes, more_permille, compressed_bytes| Trade {
            tail_order,
            min_shared_bytes,
            more_permille,
            compressed_bytes,
        };
        let chosen = trade("content", Some(1024), 18, -12_345);
        let point = |permille, trade| CurvePoint { budget: Budget { permille }, trade };
        let curve = vec![point(5, trade("pages", None, 0, 0)), point(20, chosen)];
        let traded = Traded { trades: Some(Trades { chosen, curve }), previous: None };
        let told = text(&traded);
        let lines: Vec<&str> = told.lines().skip(2).map(str::trim).collect();
        assert_eq!(
            lines,
            [
                "0.5%       0.0 %                +0  by pages".to_owned(),
                format!(
                    "2%       1.8 %           -{}  by content, where functions share at least {} bytes",
                    grouped(12_345),
                    grouped(1024)
                ),
            ]
        );
        assert_eq!(text(&Traded::default()), "");
        let choice: Vec<String> = choices(&traded).collect();
        assert!(told.starts_with(&choice.concat()) && choice.len() == 1, "{choice:?}");
        let trades = Trades { chosen, curve: vec![point(20, chosen)] };
        let alone = text(&Traded { trades: Some(trades), previous: None });
        assert!(alone.ends_with("--effort thorough prints what other budgets give\n"), "{alone}");
    }
}
