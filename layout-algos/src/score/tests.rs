//! The models against slow definitions.

use proptest::prelude::*;

use super::{FaultModel, Span, lower_bound, packed, touched_bytes};
use crate::ids::FunctionId;
use crate::order::FunctionOrder;
use crate::random::Random;

fn spans() -> impl Strategy<Value = Vec<Span>> {
    let span = (0u64..300_000, 0u64..20_000).prop_map(|(start, size)| Span { start, end: start + size });
    prop::collection::vec(span, 0..40)
}

/// Byte by byte with a plain list of what is present.
fn slow_faults(model: FaultModel, spans: &[Span]) -> Vec<u64> {
    let unit = match model {
        FaultModel::Pages { size } | FaultModel::FaultAround { block: size } => size,
        FaultModel::ReadAround { page, .. } => page,
    };
    let mut present = vec![false; 1000];
    let mut faults = 0;
    let mut after_each = Vec::new();
    for span in spans {
        for page in 0..400_000 / unit {
            let touched = page * unit < span.end && span.start < (page + 1) * unit && span.start < span.end;
            if touched && !present[page as usize] {
                faults += 1;
                let (before, length) = match model {
                    FaultModel::ReadAround { page, window, before } => (before / page, window / page),
                    _ => (0, 1),
                };
                let first = page.saturating_sub(before) as usize;
                present[first..first + length as usize].fill(true);
            }
        }
        after_each.push(faults);
    }
    after_each
}

const MODELS: [FaultModel; 6] = [
    FaultModel::Pages { size: 4096 },
    FaultModel::Pages { size: 16384 },
    FaultModel::FaultAround { block: 65536 },
    FaultModel::ReadAround { page: 4096, window: 131_072, before: 65_536 },
    FaultModel::ReadAround { page: 4096, window: 131_072, before: 0 },
    FaultModel::ReadAround { page: 4096, window: 4096, before: 0 },
];

proptest! {
    #[test]
    fn faults_agree_with_the_definition(spans in spans()) {
        for model in MODELS {
            let curve = model.faults(spans.iter().copied());
            prop_assert_eq!(curve.after_each(), slow_faults(model, &spans));
        }
    }

    /// A span far away makes the pages between too many for bits; it faults separately, once.
    #[test]
    fn distance_changes_nothing(spans in spans()) {
        let far = Span { start: 1 << 60, end: (1 << 60) + 1 };
        for model in MODELS {
            let apart = model.faults(spans.iter().copied().chain([far]));
            let (last, others) = apart.after_each().split_last().unwrap();
            prop_assert_eq!(others, slow_faults(model, &spans));
            prop_assert_eq!(*last, others.last().map_or(1, |faults| faults + 1));
        }
    }

    #[test]
    fn no_layout_beats_the_bound(
        sizes in prop::collection::vec(1u64..9000, 1..60),
        ran in 0usize..60,
        seed in any::<u64>(),
    ) {
        let mut functions: Vec<FunctionId> = (0..sizes.len() as u32).map(FunctionId).collect();
        Random::new(seed, &[]).shuffle(&mut functions);
        let layout = packed(&sizes, &FunctionOrder::of(functions).unwrap(), 16);
        let start: Vec<Span> = layout.into_iter().take(ran).collect();
        let bytes = touched_bytes(&start);
        prop_assert_eq!(bytes, sizes.iter().take(ran).sum::<u64>());
        for model in MODELS {
            prop_assert!(lower_bound(bytes, model) <= model.faults(start.iter().copied()).total());
        }
    }

    #[test]
    fn bytes_are_counted_once(spans in spans()) {
        let covered = (0..320_000u64).filter(|&byte| spans.iter().any(|span| span.start <= byte && byte < span.end));
        prop_assert_eq!(touched_bytes(&spans), covered.count() as u64);
    }
}

#[test]
fn the_bound_is_reached_by_a_dense_trace() {
    let start = [Span { start: 0, end: 5000 }, Span { start: 5000, end: 8192 }];
    let model = FaultModel::Pages { size: 4096 };
    assert_eq!(model.faults(start).total(), 2);
    assert_eq!(lower_bound(touched_bytes(&start), model), 2);
}

#[test]
fn curves_are_read_at_percentages() {
    let spans = (0..10).map(|page| Span { start: page * 4096, end: page * 4096 + 1 });
    let curve = FaultModel::Pages { size: 4096 }.faults(spans);
    assert_eq!([0, 1, 10, 11, 55, 100].map(|percent| curve.at_percent(percent)), [0, 1, 1, 2, 6, 10]);
    assert!((curve.mean() - 5.5).abs() < 1e-9);
    let rest = curve.clone().after_first(4);
    assert_eq!([0, 1, 50, 100].map(|percent| rest.at_percent(percent)), [0, 5, 7, 10]);
    assert!(curve.after_first(11).after_each().is_empty());
    let empty = FaultModel::Pages { size: 4096 }.faults([]);
    assert_eq!((empty.total(), empty.at_percent(50), empty.mean()), (0, 0, 0.0));
}
