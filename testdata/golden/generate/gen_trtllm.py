"""usage: gen_trtllm.py <kv_cache_hash.py> <source note> <out.json>
Runs TensorRT-LLM's own hash function (tensorrt_llm/runtime/kv_cache_hash.py, which imports nothing of
the package) and writes golden vectors. Of long chains with an adapter or a salt the
first three blocks are kept."""
import sys, json, importlib.util

path, note, out = sys.argv[1:4]
spec = importlib.util.spec_from_file_location('kv_cache_hash', path)
H = importlib.util.module_from_spec(spec); spec.loader.exec_module(H)

def lcg(n, mul=2654435761, add=12345, mod=128256): return [(i * mul + add) % mod for i in range(n)]
TOK = {'boundary16': [0,1,22,23,24,25,254,255,256,257,65534,65535,65536,65537,2147483646,2147483647],
       'mixed128': lcg(128), 'small8': list(range(1, 9))}

def text(x): return None if x is None else str(x)
doc = dict(engine='tensorrt-llm', source=note, token_sets=TOK,
           salt_ids=[dict(salt=s, id=str(H.get_cache_salt_id(s))) for s in ('tenant-a', '', 'sel-é')], cases=[])
for name, size in (('small8', 4), ('boundary16', 16), ('boundary16', 1), ('mixed128', 32), ('mixed128', 64)):
    for lora in (None, 0, 7, 2**40 + 5):
        for salt in (None, 'tenant-a'):
            salt_id = None if salt is None else H.get_cache_salt_id(salt)
            hashes, parent = [], 0
            for start in range(0, len(TOK[name]), size):
                parent = H.hash_v1_block_key(TOK[name][start:start + size], parent, lora, salt_id)
                hashes.append(str(parent))
            if len(hashes) > 4 and (lora or salt): hashes = hashes[:3]
            doc['cases'].append(dict(tokens=name, tokens_per_block=size, lora_task_id=text(lora), cache_salt=salt, hashes=hashes))
doc['partial_block'] = dict(tokens=[1, 2, 3], tokens_per_block=32, hash=str(H.hash_v1_block_key([1, 2, 3])),
                            note='TRT-LLM also hashes partial blocks; length is mixed into the seed')
json.dump(doc, open(out, 'w'), separators=(',', ':'))
print(len(doc['cases']), 'cases')
