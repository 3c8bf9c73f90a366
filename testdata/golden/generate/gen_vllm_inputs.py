"""usage: gen_vllm_inputs.py <extracted tree> <version> <out.json>
Cases beyond gen_vllm_hashes.py, sha256_cbor only: items that overlap each other, items that end at
block and lookahead edges, embeddings shorter than the prompt, unusual seeds, random mixtures."""
import sys, os, json, random, platform, importlib.metadata as md
from vllm_common import *

root, version, out = sys.argv[1:4]
V = vt(version)
ALGO = 'sha256_cbor'
TOK = {'ramp100': [(i * 7919 + 3) % 200000 for i in range(100)]}

def ident(i): return f'item-{i}-' + 'ab' * (i % 5)
def item(i, offset, length): return dict(identifier=ident(i), offset=offset, length=length)

def specs():
    yield 'nested', dict(mm=[item(0, 0, 40), item(1, 0, 10)]), (16, 5)
    yield 'interleaved', dict(mm=[item(0, 2, 50), item(1, 5, 20), item(2, 30, 40), item(3, 31, 2)]), (16, 7)
    yield 'ends_on_edges', dict(mm=[item(0, 0, 16), item(1, 16, 1), item(2, 17, 15), item(3, 32, 17), item(4, 49, 16)]), (16, 8)
    yield 'outer_then_inner_on_edge', dict(mm=[item(0, 0, 32), item(1, 0, 16), item(2, 60, 4)]), (16,)
    yield 'beyond_the_prompt', dict(mm=[item(0, 90, 50), item(1, 200, 5)]), (16, 9)
    if V >= (0, 11, 1):
        yield 'short_embeds', dict(prompt_embeds=dict(row_hex='0a0b0c', rows=21)), (16, 7)
        yield 'no_embeds_rows', dict(prompt_embeds=dict(row_hex='0a0b0c', rows=0)), (16,)
    rnd = random.Random(11)
    for n in range(60):
        spec, at = {}, 0
        mm = []
        for i in range(rnd.randrange(6)):
            at += rnd.randrange(12)
            mm.append(item(i, at, 1 + rnd.randrange(30)))
            if rnd.random() < .6: at += mm[-1]['length']
        if mm: spec['mm'] = mm
        if rnd.random() < .3: spec['cache_salt'] = rnd.choice(['', 'x', 'sält', 's' * 300])
        if rnd.random() < .3: spec['lora'] = dict(name='a' * rnd.randrange(1, 30), int_id=rnd.choice([1, 23, 24, 255, 70000]), path=rnd.choice(['', '/a', 'org/name']))
        if V >= (0, 11, 1) and rnd.random() < .2: spec['prompt_embeds'] = dict(row_hex='1f' * rnd.randrange(1, 5), rows=rnd.randrange(120))
        yield f'random{n}', spec, (rnd.choice([3, 8, 13, 16]),)

def ctx(seed):
    if seed is None: os.environ.pop('PYTHONHASHSEED', None)
    else: os.environ['PYTHONHASHSEED'] = seed
    ns = load(root, version)
    ns.rec = ns.hashing.cbor2 = Recorder(ns.hashing.cbor2)
    ns.fn = getattr(ns.hashing, ALGO)
    ns.kcu.init_none_hash(ns.fn)
    ns.kcu.tensor_data = lambda t: memoryview(t.data) if V >= (0, 17, 0) else types.SimpleNamespace(tobytes=lambda: t.data)
    return ns

def run(ns, bs, spec, lookahead):
    a = (bs, ns.fn) if not lookahead else (bs, ns.fn, lookahead)
    return [h.hex() for h in ns.kcu.get_request_block_hasher(*a)(Request(TOK['ramp100'], spec))]

doc = dict(engine='vllm', version=version, python=platform.python_version(), libs={'cbor2': md.version('cbor2')},
           source_sha256=source_digests(root), algos=[ALGO], token_sets=TOK, none_hash=[], cases=[])
for seed in ['', '0', '042', ' 42', 'a seed of more than twenty-three bytes', 'sëed']:
    ns = ctx(seed)
    doc['none_hash'].append(dict(algo=ALGO, seed=seed, none_hash=ns.kcu.NONE_HASH.hex(), deterministic=True, preimage=ns.rec.last.hex()))
ns = ctx('0')
for name, spec, sizes in specs():
    for bs in sizes:
        for la in (0, 1, 20) if V >= (0, 33, 0) else (0,):
            c = dict(id=f'{name}/bs{bs}/lookahead{la}', algo=ALGO, seed='0', none_hash=ns.kcu.NONE_HASH.hex(), block_size=bs,
                     tokens='ramp100', request=spec, digests=run(ns, bs, spec, la))
            if la: c['lookahead'] = la
            doc['cases'].append(c)
json.dump(doc, open(out, 'w'), separators=(',', ':'), ensure_ascii=True)
print(version, len(doc['cases']), os.path.getsize(out))
