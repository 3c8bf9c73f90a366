"""Runs vLLM's own scheduler and block pool on random requests and writes what they did.

    python gen_vllm_scheduler.py MODEL_DIR OUT.json

Needs an installed vLLM (0.32.0 was used, on CPU) and any small model directory for its
configuration; no weights are read and no model runs: the tokens it would generate are made up.
"""
import hashlib, json, os, random, sys

os.environ.setdefault('PYTHONHASHSEED', '0')
os.environ['HF_HUB_OFFLINE'] = '1'

import torch
import vllm
from vllm import SamplingParams
from vllm.config import CacheConfig, KVEventsConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.utils.hashing import sha256_cbor
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager


def make_scheduler(model, c):
    model_config = ModelConfig(model=model, tokenizer=model, dtype='float32', seed=0,
                               skip_tokenizer_init=True, max_model_len=c['max_model_len'])
    scheduler_config = SchedulerConfig(
        max_num_seqs=c['max_num_seqs'], max_num_batched_tokens=c['max_num_batched_tokens'],
        max_model_len=c['max_model_len'], enable_chunked_prefill=True, is_encoder_decoder=False,
        async_scheduling=False, watermark=c['watermark'],
        scheduler_reserve_full_isl=c['reserve_full_prompt'])
    cache_config = CacheConfig(block_size=c['block_size'], enable_prefix_caching=True,
                               prefix_caching_hash_algo='sha256_cbor')
    config = VllmConfig(model_config=model_config, scheduler_config=scheduler_config,
                        cache_config=cache_config,
                        kv_events_config=KVEventsConfig(enable_kv_cache_events=True, publisher='null'))
    # The configuration classes adjust some values to the platform: these are the ones meant.
    scheduler_config.max_num_batched_tokens = c['max_num_batched_tokens']
    scheduler_config.max_num_seqs = c['max_num_seqs']
    cache_config.block_size = c['block_size']
    cache_config.num_gpu_blocks = c['num_blocks']
    spec = FullAttentionSpec(block_size=c['block_size'], num_kv_heads=1, head_size=8,
                             dtype=torch.float32)
    kv = KVCacheConfig(num_blocks=c['num_blocks'], kv_cache_tensors=[],
                       kv_cache_groups=[KVCacheGroupSpec(['layer'], spec)])
    scheduler = Scheduler(vllm_config=config, kv_cache_config=kv, log_stats=True,
                          structured_output_manager=StructuredOutputManager(config),
                          block_size=c['block_size'], hash_block_size=c['block_size'])
    return scheduler


def token_of(request, index):
    """What the model would generate; half of the requests agree with their family."""
    return (request['family'] * 131 + (request['number'] % 2) * request['number'] * 17 + index * 7) % 5000


def number_of(value):
    return str(value)


def show(event):
    kind = type(event).__name__
    if kind == 'BlockStored':
        return {'stored': [number_of(h) for h in event.block_hashes],
                'parent': None if event.parent_block_hash is None else number_of(event.parent_block_hash),
                'tokens': len(event.token_ids),
                'extra_keys': None if event.extra_keys is None else
                              [None if k is None else list(k) for k in event.extra_keys]}
    if kind == 'BlockRemoved':
        return {'removed': [number_of(h) for h in event.block_hashes]}
    return {'cleared': True}


def scenario(model, number):
    rng = random.Random(number)
    block_size = rng.choice([1, 2, 3, 4, 8])
    # Small caches: blocks for one to three requests, so that most scenarios preempt and evict.
    num_blocks = rng.choice([6, 9, 13, 20])
    capacity = (num_blocks - 1) * block_size
    c = {
        'block_size': block_size, 'num_blocks': num_blocks, 'max_model_len': capacity,
        'max_num_seqs': rng.choice([1, 2, 3, 5, 8]),
        'max_num_batched_tokens': rng.choice([block_size, 3 * block_size + 1, capacity // 2, 4 * capacity]),
        'watermark': rng.choice([0.0, 0.0, 0.1, 0.3]),
        'reserve_full_prompt': rng.random() < 0.7,
    }
    c['max_num_batched_tokens'] = max(c['max_num_batched_tokens'], c['max_num_seqs'])
    scheduler = make_scheduler(model, c)
    published = []
    scheduler.kv_event_publisher.publish = lambda batch: published.append(batch)
    hasher = get_request_block_hasher(block_size, sha256_cbor)
    requests, live, calls = {}, {}, []
    totals = [0, 0]
    calls_left = rng.choice([30, 60])
    while calls_left > 0 or live:
        draw = rng.random()
        if calls_left > 0 and draw < 0.25:
            n = len(requests)
            family = rng.randrange(4)
            length = rng.randrange(1, max(2, min(capacity - 1, capacity * 2 // 3)))
            r = {'number': n, 'family': family, 'length': length, 'max_tokens': rng.randrange(1, 3 * block_size),
                 'salt': rng.choice([None, None, None, 'tenant'])}
            r['max_tokens'] = min(r['max_tokens'], capacity - length)
            requests[n] = r
            prompt = [(family * 1000 + i * (family + 1)) % 5000 for i in range(length)]
            request = Request(request_id=str(n), prompt_token_ids=prompt,
                              sampling_params=SamplingParams(max_tokens=r['max_tokens'], ignore_eos=True),
                              pooling_params=None, cache_salt=r['salt'], block_hasher=hasher)
            live[n] = request
            scheduler.add_request(request)
            calls.append({'submit': r})
        elif calls_left > 0 and draw < 0.27 and live:
            n = rng.choice(list(live))
            scheduler.finish_requests(str(n), RequestStatus.FINISHED_ABORTED)
            del live[n]
            calls.append({'abort': n})
        elif calls_left > 0 and draw < 0.29:
            calls.append({'reset': bool(scheduler.reset_prefix_cache())})
        elif calls_left > 0 and draw < 0.30 and live:
            calls.append({'reset_all': bool(scheduler.reset_prefix_cache(reset_running_requests=True))})
        elif live:
            calls.append({'step': step(scheduler, requests, live, published, totals)})
        calls_left -= 1
    return {'config': c, 'calls': calls, 'prefix_queries': totals[0], 'prefix_hits': totals[1]}


def step(scheduler, requests, live, published, totals):
    before = {n: r.num_preemptions for n, r in live.items()}
    output = scheduler.schedule()
    scheduled = {int(k): v for k, v in output.num_scheduled_tokens.items()}
    preempted = sorted(n for n, r in live.items() if r.num_preemptions > before[n])
    ids = [str(n) for n in scheduled]
    sampled = []
    for n in scheduled:
        request = live[n]
        done = request.num_computed_tokens >= request.num_tokens
        sampled.append([token_of(requests[n], request.num_output_tokens)] if done else [])
    result = ModelRunnerOutput(req_ids=ids, req_id_to_index={i: k for k, i in enumerate(ids)},
                               sampled_token_ids=sampled)
    outputs = scheduler.update_from_output(output, result)
    shown = []
    for core in outputs.values():
        for o in core.outputs:
            n = int(o.request_id)
            shown.append([n, o.new_token_ids[0], None if o.finish_reason is None else str(o.finish_reason)])
            if o.finish_reason is not None:
                del live[n]
        if core.scheduler_stats is not None:
            stats = core.scheduler_stats.prefix_cache_stats
            totals[0] += stats.queries
            totals[1] += stats.hits
    events = [show(e) for batch in published for e in batch.events]
    assert len(published) <= 1
    published.clear()
    waiting = len(scheduler.waiting) + len(scheduler.kv_holding_waiting)
    return {'scheduled': scheduled, 'preempted': preempted, 'outputs': shown, 'events': events,
            'running': len(scheduler.running), 'waiting': waiting,
            'free_blocks': scheduler.kv_cache_manager.block_pool.get_num_free_blocks()}


def main():
    model, out = sys.argv[1:3]
    init_none_hash(sha256_cbor)
    import vllm.v1.core.sched.scheduler as s, vllm.v1.core.block_pool as b, vllm.v1.core.kv_cache_manager as m
    digest = lambda module: hashlib.sha256(open(module.__file__, 'rb').read()).hexdigest()
    scenarios = [scenario(model, n) for n in range(int(os.environ.get('SCENARIOS', '60')))]
    with open(out, 'w') as f:
        json.dump({'engine': 'vllm', 'version': vllm.__version__.split('+')[0], 'seed': '0',
                   'source_sha256': {'vllm/v1/core/' + n: digest(x) for n, x in
                                     (('sched/scheduler.py', s), ('block_pool.py', b), ('kv_cache_manager.py', m))},
                   'scenarios': scenarios}, f, separators=(',', ':'))
        f.write('\n')
    steps = [c['step'] for x in scenarios for c in x['calls'] if 'step' in c]
    print(len(scenarios), 'scenarios', len(steps), 'steps',
          sum(len(s['preempted']) for s in steps), 'preemptions',
          sum('removed' in e for s in steps for e in s['events']), 'removals')


main()
