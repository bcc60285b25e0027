//! Whole paths of directories, kept so that a file's path is one copy and a number.
//!
//! Invariants: directories of the shape come first and keep their numbers; a name is given once.

use super::shape::{DirectoryNumber, Shape};

/// See the module.
#[derive(Debug)]
pub(super) struct Paths {
    text: String,
    directories: Vec<Directory>,
}

#[derive(Clone, Copy, Debug)]
struct Directory {
    from: usize,
    to: usize,
    /// The next name's number of a directory in it.
    next_directory: u32,
    /// The same of a file.
    next_file: u32,
}

impl Paths {
    /// Of the directories of a shape. The root's path is empty.
    pub(super) fn of(shape: &Shape) -> Paths {
        let mut paths = Paths { text: String::new(), directories: Vec::with_capacity(shape.directories()) };
        for (number, (parent, files)) in shape.iter().enumerate() {
            match number {
                0 => {
                    paths.directories.push(Directory { from: 0, to: 0, next_directory: 0, next_file: files });
                }
                _ => {
                    paths.add(parent, files);
                }
            }
        }
        paths
    }

    fn add(&mut self, parent: DirectoryNumber, files: u32) -> DirectoryNumber {
        let above = &mut self.directories[parent.0 as usize];
        let (range, name) = (above.from..above.to, above.next_directory);
        above.next_directory += 1;
        let from = self.text.len();
        self.text.extend_from_within(range);
        self.text.push_str("/d");
        put_number(&mut self.text, name);
        let to = self.text.len();
        self.directories.push(Directory { from, to, next_directory: 0, next_file: files });
        DirectoryNumber((self.directories.len() - 1) as u32)
    }

    /// A new directory in another one.
    pub(super) fn add_directory(&mut self, parent: DirectoryNumber) -> DirectoryNumber {
        self.add(parent, 0)
    }

    /// The number of a name that no file of a directory has had.
    pub(super) fn add_file(&mut self, directory: DirectoryNumber) -> u32 {
        let next = &mut self.directories[directory.0 as usize].next_file;
        *next += 1;
        *next - 1
    }

    /// The path of a directory.
    pub(super) fn directory(&self, number: DirectoryNumber) -> &str {
        let Directory { from, to, .. } = self.directories[number.0 as usize];
        match from == to {
            true => "/",
            false => &self.text[from..to],
        }
    }

    /// The path of a file.
    pub(super) fn file(&self, directory: DirectoryNumber, name: u32) -> String {
        let Directory { from, to, .. } = self.directories[directory.0 as usize];
        let mut path = String::with_capacity(to - from + 12);
        path.push_str(&self.text[from..to]);
        path.push_str("/f");
        put_number(&mut path, name);
        path
    }
}

/// Appends a number. It is half of the time that an event takes if formatting machinery does it.
pub(super) fn put_number(text: &mut String, mut number: u32) {
    let mut digits = [0; 10];
    let mut from = digits.len();
    loop {
        from -= 1;
        digits[from] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    text.extend(digits[from..].iter().map(|digit| char::from(*digit)));
}

#[cfg(test)]
mod tests {
    use super::super::shape::ShapeBuilder;
    use super::*;

    #[test]
    fn paths_are_those_of_the_shape_and_of_what_is_added() {
        let mut builder = ShapeBuilder::default();
        let a = builder.directory(ShapeBuilder::ROOT).expect("shallow");
        builder.directory(ShapeBuilder::ROOT).expect("shallow");
        let c = builder.directory(a).expect("shallow");
        builder.files(c, 3).expect("few");
        let mut paths = Paths::of(&builder.finish());
        assert_eq!([0, 1, 2, 3].map(|d| paths.directory(DirectoryNumber(d))), ["/", "/d0", "/d1", "/d0/d0"]);
        assert_eq!(paths.file(c, 2), "/d0/d0/f2");
        assert_eq!(paths.file(ShapeBuilder::ROOT, 10), "/f10");
        assert_eq!((paths.add_file(c), paths.add_file(c)), (3, 4));
        let added = paths.add_directory(a);
        assert_eq!((added, paths.directory(added)), (DirectoryNumber(4), "/d0/d1"));
        let mut text = String::new();
        [0, 9, 10, u32::MAX].into_iter().for_each(|number| put_number(&mut text, number));
        assert_eq!(text, "09104294967295");
    }
}
