//! Functions that share no byte with another.

use crate::functions::FunctionTable;
use reorder_base::address::Address;

/// For each function, whether it shares no byte with another. All such functions together are no larger than the image.
pub fn functions_apart(functions: &FunctionTable<'_>) -> Vec<bool> {
    // The farthest end of all functions so far.
    let mut end = Address(0);
    let is_apart = functions.iter().map(|(index, function)| {
        let is_after_others = function.start >= end;
        end = end.max(function.end);
        is_after_others && functions.after(index).is_none_or(|next| function.end <= next.start)
    });
    is_apart.collect()
}
