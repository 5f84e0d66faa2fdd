//! What Rust adds: panics that are caught, threads, trait objects, matches that become tables.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

trait Shape {
    fn area(&self) -> f64;
    fn name(&self) -> String {
        "shape".to_owned()
    }
}
struct Square(f64);
struct Circle(f64);
impl Shape for Square {
    fn area(&self) -> f64 {
        self.0 * self.0
    }
}
impl Shape for Circle {
    fn area(&self) -> f64 {
        self.0 * self.0 * 3.0
    }
    fn name(&self) -> String {
        "circle".to_owned()
    }
}

struct Guard(&'static str);
impl Drop for Guard {
    fn drop(&mut self) {
        print!("~{} ", self.0);
    }
}

#[inline(never)]
fn fails(depth: u32) -> u32 {
    let _guard = Guard("guard");
    if depth == 0 { panic!("bottom") }
    fails(depth - 1) + 1
}

#[inline(never)]
fn operate(code: u8, value: i64) -> i64 {
    match code {
        0 => value + 1,
        1 => value * 3,
        2 => value - 7,
        3 => value.pow(2),
        4 => -value,
        5 => value.rotate_left(3),
        6 => value.checked_div(0).unwrap_or(-5),
        _ => 0,
    }
}

thread_local! {
    static COUNT: std::cell::Cell<u32> = const { std::cell::Cell::new(3) };
}

fn main() {
    std::panic::set_hook(Box::new(|_| print!("panic ")));
    let shapes: Vec<Box<dyn Shape>> = vec![Box::new(Square(2.0)), Box::new(Circle(1.5))];
    for shape in &shapes {
        println!("{} {:.2}", shape.name(), shape.area());
    }
    let caught = catch_unwind(|| fails(3)).is_err();
    println!("{caught}");
    let workers: Vec<_> = (0..4u32)
        .map(|index| {
            thread::spawn(move || {
                COUNT.with(|count| count.set(count.get() + index));
                if index == 2 { panic!("worker") }
                COUNT.with(std::cell::Cell::get)
            })
        })
        .collect();
    let results: Vec<Option<u32>> = workers.into_iter().map(|worker| worker.join().ok()).collect();
    println!("{results:?}");
    let codes: Vec<i64> = (0..8).map(|code| operate(code, 12)).collect();
    println!("{codes:?}");
    let table: HashMap<&str, fn(i64) -> i64> = HashMap::from([("twice", (|n| n * 2) as fn(i64) -> i64), ("one", |n| n + 1)]);
    println!("{} {}", table["twice"](4), table["one"](4));
    let mut words: Vec<String> = "the quick brown fox".split(' ').map(str::to_uppercase).collect();
    words.sort();
    println!("{}", words.join("-"));
    let index = words.len() + 3;
    println!("{}", catch_unwind(AssertUnwindSafe(|| words[index].len())).is_err());
}
