"""usage: gen_pickle_edges.py <out.json>
What CPython's own pickler writes for block hashes with unusual strings and sizes: strings that
CPython keeps one object of, payloads around and beyond 64 KiB, frames too short for a header, and
memo numbers beyond 255. The objects are built as vLLM of the named version builds them; strings
that come with a request are objects of their own. A long string is written as
{"repeat": [piece, times]}."""
import sys, json, pickle, hashlib, platform

TAGS = dict(lora='lora', mm='mm', cache_salt='cache_salt', prompt_embeds='prompt_embeds')

def repeat(piece, times): return dict(repeat=[piece, times])

def plain(s): return s['repeat'][0] * s['repeat'][1] if isinstance(s, dict) else s

def fresh(s): return plain(s).encode('utf-8').decode('utf-8')

def keys(version, req, start, end):
    """the extra keys of tokens [start, end)"""
    out = []
    tagged, offsets = version >= (0, 31), version >= (0, 19)
    if (lora := req.get('lora')) is not None:
        name, path = fresh(lora['name']), fresh(lora['path'])
        if tagged: out.append((TAGS['lora'], name, path))
        else: out.append(lora['int_id'] if version < (0, 11, 1) else name)
    for item in req.get('mm', []):
        if end > item['offset'] and start < item['offset'] + item['length']:
            key = (fresh(item['identifier']),)
            if offsets: key += (item['offset'] - start,)
            if tagged: key = (TAGS['mm'],) + key
            out.append(key if len(key) > 1 else key[0])
    if start == 0 and req.get('cache_salt'):
        salt = fresh(req['cache_salt'])
        out.append((TAGS['cache_salt'], salt) if tagged else salt)
    if (e := req.get('prompt_embeds')) is not None:
        row = bytes.fromhex(plain(e['row_hex']))
        rows = row * len(range(start, min(end, e['rows'])))
        if version >= (0, 17): rows = hashlib.sha256(rows).digest()
        out.append((TAGS['prompt_embeds'], rows) if tagged else rows)
    return tuple(out) or None

def as_int(version, digest): return int.from_bytes(digest, 'big') if version < (0, 10, 2) else digest

def case(name, version, block_size, count, req):
    v = tuple(int(x) for x in version.split('.'))
    tokens = [(i * 2654435761 + 12345) % 2**32 for i in range(count)]
    digest = hashlib.sha256(pickle.dumps('0', protocol=5)).digest()
    blocks = []
    for start in range(0, count - block_size + 1, block_size):
        extra = keys(v, req, start, start + block_size)
        data = pickle.dumps((as_int(v, digest), tuple(tokens[start:start + block_size]), extra), protocol=5)
        digest = hashlib.sha256(data).digest()
        block = dict(digest=digest.hex(), u64=str(int.from_bytes(digest[-8:], 'big')))
        if len(data) < 500: block['preimage'] = data.hex()
        else: block.update(preimage_len=len(data), preimage_sha256=hashlib.sha256(data).hexdigest())
        blocks.append(block)
    return dict(id=name, version=version, algo='sha256', seed='0', block_size=block_size,
                tokens=f'formula:wide:{count}', request=req, blocks=blocks)

def mm(*items): return [dict(identifier=i, offset=o, length=n) for i, o, n in items]

def cases():
    small = dict(lora=dict(name='a', int_id=2**63 + 5, path='a'), cache_salt='a')
    for version in ('0.10.1', '0.11.0', '0.16.0', '0.18.1', '0.30.0', '0.33.0'):
        yield case('one_letter_everywhere', version, 4, 8, dict(small, mm=mm(('a', 1, 2), ('a', 5, 1))))
        yield case('empty_strings', version, 4, 8, dict(lora=dict(name='', int_id=0, path=''), mm=mm(('', 0, 8))))
        yield case('latin1_letter', version, 4, 4, dict(lora=dict(name='\u00e9', int_id=300, path='\u00e9'), cache_salt='\u00e9'))
        yield case('other_letter', version, 4, 4, dict(lora=dict(name='\u672c', int_id=70000, path='\u672c'), cache_salt='\u672c'))
        yield case('equal_to_a_tag', version, 4, 4, dict(lora=dict(name='mm', int_id=2**31, path='lora'), mm=mm(('mm', 0, 1), ('mm', 1, 1)), cache_salt='cache_salt'))
        yield case('many_items', version, 300, 300, dict(mm=mm(*((f'{i % 7}' if i % 3 == 0 else f'item-{i}', i, 1) for i in range(300)))))
        for size in (65535, 65536):
            yield case(f'salt_of_{size}', version, 4, 8, dict(cache_salt=repeat('s', size)))
            yield case(f'name_path_and_salt_of_{size}', version, 4, 4, dict(lora=dict(name=repeat('n', size), int_id=1, path=repeat('p', size)), cache_salt=repeat('s', size)))
            yield case(f'empty_between_{size}', version, 4, 4, dict(mm=mm((repeat('m', size), 0, 1), ('', 0, 1), (repeat('m', size), 0, 1), ('', 1, 1))))
        yield case('long_salt_after_many_tokens', version, 13101, 13101, dict(cache_salt=repeat('s', 70000)))
        if version == '0.16.0':
            for rows in (15, 16, 17):
                yield case(f'raw_embeds_{rows}', version, 16, 16, dict(prompt_embeds=dict(row_hex=repeat('a5', 4096), rows=rows)))
            yield case('raw_embeds_and_all', version, 16, 32, dict(small, prompt_embeds=dict(row_hex=repeat('a5', 4096), rows=40)))

doc = dict(python=platform.python_version(),
           formulas=dict(wide=dict(kind='lcg', mul=2654435761, add=12345, mod=2**32)), cases=list(cases()))
with open(sys.argv[1], 'w') as f:
    json.dump(doc, f, separators=(',', ':'), ensure_ascii=True)
print(len(doc['cases']), 'cases')
