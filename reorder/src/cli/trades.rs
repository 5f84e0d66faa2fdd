//! What a layout traded for compression, as text.

use reorder_layout::compression::{Trade, Trades};
use reorder_report::table::grouped;

/// Lines about the choice, and the curve of budgets where it was computed.
pub(super) fn text(trades: &Trades) -> String {
    let mut text = format!("compression: {}\n", sentence(&trades.chosen));
    if !trades.curve.is_empty() {
        text.push_str("budget    compressed bytes  order of functions that no trace ran\n");
    }
    for trade in &trades.curve {
        text.push_str(&format!(
            "{:>7}  {:>17}  {}\n",
            percent(trade),
            signed(trade.compressed_bytes),
            tail_order(trade)
        ));
    }
    text
}

fn sentence(trade: &Trade) -> String {
    match trade.tail_order {
        "pages" => "the layout by pages stays: no other order within the budget compresses better".to_owned(),
        _ => format!(
            "{}: about {} bytes for {} more pages of new startups (estimates)",
            tail_order(trade),
            signed(trade.compressed_bytes),
            percent(trade)
        ),
    }
}

fn tail_order(trade: &Trade) -> String {
    match (trade.tail_order, trade.unit_bytes) {
        ("content", Some(1)) => "by content, function by function".to_owned(),
        ("content", Some(bytes)) => format!("by content in units of {} bytes", grouped(bytes)),
        ("link", _) => "as the linker placed them".to_owned(),
        _ => "by pages".to_owned(),
    }
}

fn percent(trade: &Trade) -> String {
    format!("{}.{} %", trade.more_permille / 10, trade.more_permille % 10)
}

fn signed(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "+" };
    format!("{sign}{}", grouped(bytes.unsigned_abs()))
}
