//! The free blocks in eviction order: a doubly linked list over block numbers.

/// A block's number.
pub(crate) type BlockId = u32;

/// No block: a list's end, or a block that is in no list.
const NONE: BlockId = BlockId::MAX;

/// The free blocks, the next one to be reused first.
#[derive(Debug)]
pub(super) struct FreeQueue {
    links: Vec<Link>,
    head: BlockId,
    tail: BlockId,
    length: usize,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    previous: BlockId,
    next: BlockId,
    listed: bool,
}

impl FreeQueue {
    /// Blocks 1 to `blocks - 1` by number. Block 0 is the null block: used forever.
    pub(super) fn new(blocks: usize) -> Self {
        let unlisted = Link { previous: NONE, next: NONE, listed: false };
        let links = vec![unlisted; blocks];
        let mut queue = Self { links, head: NONE, tail: NONE, length: 0 };
        (1..blocks as BlockId).for_each(|block| queue.push_back(block));
        queue
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn contains(&self, block: BlockId) -> bool {
        self.links[block as usize].listed
    }

    pub(super) fn pop_front(&mut self) -> Option<BlockId> {
        let block = self.head;
        (block != NONE).then(|| {
            self.remove(block);
            block
        })
    }

    pub(super) fn push_back(&mut self, block: BlockId) {
        self.link(block, self.tail, NONE);
    }

    pub(super) fn push_front(&mut self, block: BlockId) {
        self.link(block, NONE, self.head);
    }

    /// Takes a block out of the middle; nothing if it is not free.
    pub(super) fn remove(&mut self, block: BlockId) {
        let Link { previous, next, listed } = self.links[block as usize];
        if !listed {
            return;
        }
        match previous {
            NONE => self.head = next,
            _ => self.links[previous as usize].next = next,
        }
        match next {
            NONE => self.tail = previous,
            _ => self.links[next as usize].previous = previous,
        }
        self.links[block as usize] = Link { previous: NONE, next: NONE, listed: false };
        self.length -= 1;
    }

    fn link(&mut self, block: BlockId, previous: BlockId, next: BlockId) {
        debug_assert!(!self.contains(block), "block {block} is free already");
        self.links[block as usize] = Link { previous, next, listed: true };
        match previous {
            NONE => self.head = block,
            _ => self.links[previous as usize].next = block,
        }
        match next {
            NONE => self.tail = block,
            _ => self.links[next as usize].previous = block,
        }
        self.length += 1;
    }

    /// All free blocks in order, both ways.
    #[cfg(test)]
    pub(super) fn walk(&self) -> (Vec<BlockId>, Vec<BlockId>) {
        let follow = |mut id: BlockId, step: fn(&Link) -> BlockId| {
            let mut ids = Vec::new();
            while id != NONE && ids.len() <= self.links.len() {
                ids.push(id);
                id = step(&self.links[id as usize]);
            }
            ids
        };
        (follow(self.head, |link| link.next), follow(self.tail, |link| link.previous))
    }
}
