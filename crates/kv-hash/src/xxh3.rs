//! XXH3-64 with a secret, of inputs of the sizes that blocks have.
//!
//! The hash crate does the same through generic steps that compilers leave uninlined, so that a block
//! of 16 tokens took thousands of instructions instead of a hundred. Other sizes are left to it.

use twox_hash::XxHash3_64;

const SECRET_LEN: usize = 192;
const PRIME_1: u64 = 0x9e37_79b1_85eb_ca87;
const AVALANCHE: u64 = 0x1656_6791_9e37_79f9;
/// Sizes from which on two and more steps, a second round, and stripes are needed.
const SHORTEST: usize = 17;
const ONE_ROUND: usize = 128;
const LONGEST: usize = 240;
/// What is mixed at once.
type Step = [u8; 16];
/// Steps of the first round of long inputs.
const STEPS: usize = 8;

/// `XXH3_64bits_withSecret`.
pub(crate) fn digest(secret: &[u8; SECRET_LEN], input: &[u8]) -> u64 {
    match input.len() {
        SHORTEST..=ONE_ROUND => one_round(secret, input),
        len if len > ONE_ROUND && len <= LONGEST => two_rounds(secret, input),
        _ => other_size(secret, input),
    }
}

fn other_size(secret: &[u8; SECRET_LEN], input: &[u8]) -> u64 {
    match XxHash3_64::oneshot_with_secret(&secret[..], input) {
        Ok(hash) => hash,
        // The secret's length is fixed above the minimum by its type.
        Err(_) => unreachable!("secret of {SECRET_LEN} bytes refused"),
    }
}

/// Pairs of steps from both ends towards the middle. Iterators alone, so that no step checks a bound.
#[inline]
fn one_round(secret: &[u8; SECRET_LEN], input: &[u8]) -> u64 {
    let ends = input.as_chunks().0.iter().zip(input.as_rchunks().1.iter().rev());
    let pairs = (input.len() - 1) / 32 + 1;
    let mut sum = start(input);
    for ((front, back), secret) in ends.zip(secret.as_chunks::<32>().0).take(pairs) {
        let [front_secret, back_secret] = secret.as_chunks().0 else { continue };
        sum = sum.wrapping_add(step(front, front_secret)).wrapping_add(step(back, back_secret));
    }
    avalanche(sum)
}

#[inline]
fn two_rounds(secret: &[u8; SECRET_LEN], input: &[u8]) -> u64 {
    let (first, second) = input.as_chunks().0.split_at(STEPS);
    let with = |input: &[Step], secret: &[u8]| {
        let steps =
            input.iter().zip(secret.as_chunks().0).map(|(input, secret)| step(input, secret));
        steps.fold(0, u64::wrapping_add)
    };
    let sum = avalanche(start(input).wrapping_add(with(first, secret)));
    let end = input.last_chunk().zip(secret[136 - 17..].first_chunk());
    let end = end.map_or(0, |(input, secret)| step(input, secret));
    avalanche(sum.wrapping_add(with(second, &secret[3..])).wrapping_add(end))
}

#[inline]
fn start(input: &[u8]) -> u64 {
    (input.len() as u64).wrapping_mul(PRIME_1)
}

/// Sixteen bytes of input with as many of the secret.
#[inline]
fn step(input: &Step, secret: &Step) -> u64 {
    let (input, secret) = (u128::from_le_bytes(*input), u128::from_le_bytes(*secret));
    let mixed = input ^ secret;
    let product = u128::from(mixed as u64) * u128::from((mixed >> 64) as u64);
    product as u64 ^ (product >> 64) as u64
}

#[inline]
fn avalanche(hash: u64) -> u64 {
    let mixed = (hash ^ hash >> 37).wrapping_mul(AVALANCHE);
    mixed ^ mixed >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_is_the_hash_crates() {
        let mut x = 0x2545_f491_4f6c_dd1d_u64;
        let mut byte = || {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x.to_le_bytes()[5]
        };
        for _ in 0..8 {
            let secret: [u8; SECRET_LEN] = std::array::from_fn(|_| byte());
            for len in 0..400 {
                let input: Vec<u8> = (0..len).map(|_| byte()).collect();
                let want = XxHash3_64::oneshot_with_secret(&secret[..], &input).unwrap();
                assert_eq!(digest(&secret, &input), want, "{len} bytes");
            }
        }
    }
}
