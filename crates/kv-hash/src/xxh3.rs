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
/// Steps of the first round of long inputs.
const STEPS: usize = 8;

/// `XXH3_64bits_withSecret`.
pub(crate) fn digest(secret: &[u8; SECRET_LEN], input: &[u8]) -> u64 {
    let short = match input.len() {
        SHORTEST..=ONE_ROUND => one_round(secret, input),
        len if len > ONE_ROUND && len <= LONGEST => two_rounds(secret, input),
        _ => None,
    };
    short.unwrap_or_else(|| match XxHash3_64::oneshot_with_secret(&secret[..], input) {
        Ok(hash) => hash,
        // The secret's length is fixed above the minimum by its type.
        Err(_) => unreachable!("secret of {SECRET_LEN} bytes refused"),
    })
}

/// Pairs of steps from both ends towards the middle.
#[inline]
fn one_round(secret: &[u8; SECRET_LEN], input: &[u8]) -> Option<u64> {
    let mut sum = (input.len() as u64).wrapping_mul(PRIME_1);
    let pairs = (input.len() - 1) / 32;
    for pair in 0..=pairs {
        let front = step(input, 16 * pair, secret, 32 * pair)?;
        let back = step(input, input.len() - 16 * (pair + 1), secret, 32 * pair + 16)?;
        sum = sum.wrapping_add(front).wrapping_add(back);
    }
    Some(avalanche(sum))
}

#[inline]
fn two_rounds(secret: &[u8; SECRET_LEN], input: &[u8]) -> Option<u64> {
    let mut sum = (input.len() as u64).wrapping_mul(PRIME_1);
    for at in 0..STEPS {
        sum = sum.wrapping_add(step(input, 16 * at, secret, 16 * at)?);
    }
    sum = avalanche(sum);
    for at in STEPS..input.len() / 16 {
        sum = sum.wrapping_add(step(input, 16 * at, secret, 16 * (at - STEPS) + 3)?);
    }
    Some(avalanche(sum.wrapping_add(step(input, input.len() - 16, secret, 136 - 17)?)))
}

/// Sixteen bytes of input with as many of the secret.
#[inline]
fn step(input: &[u8], at: usize, secret: &[u8; SECRET_LEN], secret_at: usize) -> Option<u64> {
    let (low, high) = words(input.get(at..at + 16)?)?;
    let (secret_low, secret_high) = words(secret.get(secret_at..secret_at + 16)?)?;
    let product = u128::from(low ^ secret_low) * u128::from(high ^ secret_high);
    Some(product as u64 ^ (product >> 64) as u64)
}

#[inline]
fn words(bytes: &[u8]) -> Option<(u64, u64)> {
    let whole = u128::from_le_bytes(*bytes.first_chunk()?);
    Some((whole as u64, (whole >> 64) as u64))
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
