//! Generic functions, a trait object, and a panic that is caught.

trait Shape {
    fn area(&self) -> u64;
}

struct Square(u64);
struct Circle(u64);

impl Shape for Square {
    #[inline(never)]
    fn area(&self) -> u64 {
        self.0 * self.0
    }
}

impl Shape for Circle {
    #[inline(never)]
    fn area(&self) -> u64 {
        self.0 * self.0 * 355 / 113
    }
}

#[inline(never)]
fn never(value: u64) -> u64 {
    (0..value).fold(value, |sum, round| sum.wrapping_mul(31).wrapping_add(round))
}

#[inline(never)]
fn largest<Item: Ord + Copy>(items: &[Item]) -> Option<Item> {
    items.iter().copied().max()
}

#[inline(never)]
fn checked(area: u64) -> u64 {
    assert!(area < 50, "too large");
    area
}

fn main() {
    let count = std::env::args().count() as u64;
    std::panic::set_hook(Box::new(|_| {}));
    let shapes: Vec<Box<dyn Shape>> = vec![Box::new(Circle(count + 1)), Box::new(Square(count + 6))];
    let areas: Vec<u64> = shapes.iter().map(|shape| shape.area()).collect();
    println!("{areas:?} {:?} {:?}", largest(&areas), largest(&["b", "c", "a"]));
    let refused = std::panic::catch_unwind(|| areas.iter().map(|&area| checked(area + 40)).sum::<u64>());
    println!("{}", refused.is_err());
    if count > 5 {
        println!("{}", never(count));
    }
}
