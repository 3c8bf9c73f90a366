#!/usr/bin/env python3
"""Makes the golden vectors again from the engines' published packages.

usage: regenerate.py [--check] [--only vllm-hash,vllm-inputs,vllm-events,pickle-edges,sglang,trtllm]
                     [--release VERSION] [--work DIR] [--trtllm-source FILE]

Downloads each release from PyPI (checked against the index's SHA-256), extracts only the files the
generators run, installs what they import into a virtual environment below DIR (default
target/golden), and runs them. Without --check the files of testdata/golden are written; with it they
are only compared, and a difference is exit status 1. What names the machine (versions of Python and
of libraries, times) is not compared.

TensorRT-LLM publishes no Python source on PyPI: give its tensorrt_llm/runtime/kv_cache_hash.py with
--trtllm-source, or its file is left out, and said so. vllm-scheduler/ runs an installed vLLM: see
its README. A release that is not in the index yet (--release) is added to it: with the file of a
release whose vectors are the same, else with a new one. One that shares another release's file is
compared with it, but for the version and the sources' SHA-256, and never written.
"""
import argparse, hashlib, json, os, shutil, subprocess, sys, sysconfig, tarfile, tempfile, urllib.request, venv, zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parent
# What the vectors were made with; later ones give the same, which --check proves.
LIBRARIES = ['cbor2', 'xxhash', 'msgspec', 'pyzmq', 'numpy', 'pybind11']
# Not compared: they describe the machine, or the moment.
VOLATILE = {'python', 'libs', 'wire'}
NATIVE_SINCE = (0, 5, 15)


def version_key(text):
    return tuple(int(part) for part in text.split('.')[:3])


def say(*words):
    print(*words, file=sys.stderr, flush=True)


class Kind:
    """One family of files: where they lie, from which package, by which script."""

    def __init__(self, name, directory, index_key, prefix, package, script):
        self.name, self.directory, self.index_key = name, directory, index_key
        self.prefix, self.package, self.script = prefix, package, script

    def index_path(self):
        return GOLDEN / self.directory / 'index.json'

    def index(self):
        return json.loads(self.index_path().read_text())[self.index_key]

    def own_file(self, release):
        return f'{self.prefix}{release}.json'

    def files(self):
        """(file, release) for each distinct file: the release it is named after."""
        own = {name: name[len(self.prefix):-len('.json')] for name in self.index().values()}
        return sorted(own.items(), key=lambda item: version_key(item[1]))

    def add(self, release, name):
        """Adds a release to the index, in order."""
        index = json.loads(self.index_path().read_text())
        entries = {**index[self.index_key], release: name}
        index[self.index_key] = dict(sorted(entries.items(), key=lambda item: version_key(item[0])))
        self.index_path().write_text(json.dumps(index, indent=1) + '\n')


KINDS = [
    Kind('vllm-hash', 'vllm-hash', 'vllm_hash', 'vllm-hash-', 'vllm', 'gen_vllm_hashes.py'),
    Kind('vllm-inputs', 'vllm-hash', 'vllm_inputs', 'vllm-inputs-', 'vllm', 'gen_vllm_inputs.py'),
    Kind('vllm-events', 'vllm-events', 'vllm_events', 'events-vllm-', 'vllm', 'gen_vllm_events.py'),
    Kind('sglang', 'sglang', 'sglang', 'sglang-', 'sglang', 'gen_sglang.py'),
]


def fetch(package, release, work):
    """The extracted Python sources of one release."""
    tree = work / f'{package}-{release}'
    if (tree / '.complete').exists():
        return tree
    request = urllib.request.Request(
        os.environ.get('PIP_INDEX_URL', 'https://pypi.org/simple').rstrip('/') + f'/{package}/',
        headers={'Accept': 'application/vnd.pypi.simple.v1+json'})
    with urllib.request.urlopen(request, timeout=60) as answer:
        files = json.load(answer)['files']
    # vLLM's wheels hold hundreds of megabytes of kernels, its source distributions do not;
    # SGLang's wheels hold the same Python files for every platform.
    wanted = [f for f in files if f['filename'] == f'{package}-{release}.tar.gz']
    if package == 'sglang' or not wanted:
        wheels = [f for f in files if f['filename'].startswith(f'{package}-{release}-') and f['filename'].endswith('.whl')]
        wanted = sorted(wheels, key=lambda f: f.get('size') or 0) or wanted
    if not wanted:
        sys.exit(f'{package} {release}: not on PyPI as a source distribution or wheel')
    chosen = wanted[0]
    say(f'{package} {release}: {chosen["filename"]}, {(chosen.get("size") or 0) >> 20} MiB')
    with tempfile.TemporaryDirectory(dir=work) as scratch:
        archive = Path(scratch) / chosen['filename']
        with urllib.request.urlopen(chosen['url'], timeout=180) as answer, open(archive, 'wb') as out:
            shutil.copyfileobj(answer, out)
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        if digest != chosen['hashes'].get('sha256'):
            sys.exit(f'{chosen["filename"]}: SHA-256 is {digest}, the index says otherwise')
        extract(archive, package, tree)
    (tree / '.complete').touch()
    return tree


def extract(archive, package, tree):
    """Only the package's own sources; paths that leave the tree are refused."""
    def place(name):
        parts = Path(name).parts
        if package not in parts[:2] or '..' in parts or not name.endswith(('.py', '.cpp', '.h', '.hpp')):
            return None
        return tree.joinpath(*parts[parts.index(package):])

    if archive.suffix == '.whl':
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                if target := place(name):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(wheel.read(name))
        return
    with tarfile.open(archive) as sdist:
        for member in sdist:
            if member.isfile() and (target := place(member.name)):
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(sdist.extractfile(member).read())


def environment(work):
    """A Python with what the generators import."""
    home = work / 'venv'
    python = home / 'bin' / 'python'
    if not (home / '.complete').exists():
        say('installing', *LIBRARIES)
        venv.create(home, with_pip=True, clear=True)
        subprocess.run([python, '-m', 'pip', 'install', '-q', *LIBRARIES], check=True)
        (home / '.complete').touch()
    return python


def native_hash(python, tree, release):
    """SGLang's own hash extension, compiled as it would compile it; `-` where it has none."""
    source = tree / 'sglang/srt/mem_cache/cpp_utils/hash_binding.cpp'
    if version_key(release) < NATIVE_SINCE or not source.exists():
        return '-'
    built = tree / 'native'
    built.mkdir(exist_ok=True)
    target = built / ('hicache_hash_cpp' + sysconfig.get_config_var('EXT_SUFFIX'))
    if not target.exists():
        includes = subprocess.check_output([python, '-m', 'pybind11', '--includes'], text=True).split()
        subprocess.run([os.environ.get('CXX', 'c++'), '-O2', '-shared', '-fPIC', '-std=c++17',
                        '-DTORCH_EXTENSION_NAME=hicache_hash_cpp', *includes, source, '-o', target, '-lcrypto'], check=True, stderr=subprocess.DEVNULL)
    return built


def comparable(doc):
    """What is the same each time: without the machine, and without chains that begin with a random
    NONE_HASH, as vLLM draws it where PYTHONHASHSEED is not set."""
    doc = {key: value for key, value in doc.items() if key not in VOLATILE}
    random = {(e['algo'], e['seed']) for e in doc.get('none_hash', []) if not e.get('deterministic', True)}
    fixed = lambda entry: (entry.get('algo'), entry.get('seed')) not in random
    for key in ('none_hash', 'cases'):
        if random and key in doc:
            doc[key] = [entry for entry in doc[key] if fixed(entry)]
    return doc


def settle(made, kept, check):
    """Keeps or compares one file; gives whether it is as it was."""
    new = json.loads(made.read_text())
    old = json.loads(kept.read_text()) if kept.exists() else None
    same = old is not None and comparable(old) == comparable(new)
    if not check and not same:
        shutil.copyfile(made, kept)
    word = 'same' if same else 'DIFFERS' if check else 'written'
    say(f'  {kept.relative_to(GOLDEN)}: {word}')
    if old is not None and not same:
        before, after = comparable(old), comparable(new)
        for key in sorted(set(before) | set(after)):
            if before.get(key) != after.get(key):
                say(f'    `{key}` is not as it was')
    return same


def settle_release(kind, release, made, check):
    """Compares one release with the file it shares with others, which is never written, or finds it
    a place in the index."""
    vectors = lambda doc: {k: v for k, v in comparable(doc).items() if k not in ('version', 'source_sha256')}
    new = vectors(json.loads(made.read_text()))
    known = lambda name: vectors(json.loads((GOLDEN / kind.directory / name).read_text()))
    index = kind.index()
    if name := index.get(release):
        same = known(name) == new
        say(f'  {release}: {"same vectors as" if same else "DIFFERS from"} {kind.directory}/{name}')
        if not same and not check:
            sys.exit(f'nothing was written: take {release} out of {kind.directory}/index.json '
                     f'(`{kind.index_key}`), then this command gives it a file of its own')
        return same
    alike = next((name for name, _ in reversed(kind.files()) if known(name) == new), None)
    say(f'  {release}: not in the index; ' + (f'same vectors as {alike}' if alike else 'vectors of its own'))
    if not check:
        if alike is None:
            shutil.copyfile(made, GOLDEN / kind.directory / kind.own_file(release))
        kind.add(release, alike or kind.own_file(release))
        say(f'  {kind.directory}/index.json: {release} added')
    return alike is not None


def main():
    parse = argparse.ArgumentParser(prog='cargo xtask golden', description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument('--check', action='store_true', help='compare only; exit status 1 where a file differs')
    parse.add_argument('--only', help='families, separated by commas')
    parse.add_argument('--release', help='one release instead of all')
    parse.add_argument('--work', type=Path, default=GOLDEN.parent.parent / 'target' / 'golden', help='downloads and the environment')
    parse.add_argument('--trtllm-source', type=Path, help="TensorRT-LLM's kv_cache_hash.py")
    args = parse.parse_args()
    families = [kind.name for kind in KINDS] + ['pickle-edges', 'trtllm']
    chosen = args.only.split(',') if args.only else families
    if unknown := sorted(set(chosen) - set(families)):
        parse.error(f'no such family: {", ".join(unknown)} (there are {", ".join(families)})')
    if args.release and len([k for k in KINDS if k.name in chosen]) != 1:
        parse.error('--release needs one family with releases in --only')
    work = args.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    python = environment(work)
    made = work / 'made.json'
    run = lambda script, *words: subprocess.run([python, HERE / script, *words], check=True, stdout=subprocess.DEVNULL)
    same = []
    for kind in (kind for kind in KINDS if kind.name in chosen):
        files = [(None, args.release)] if args.release else kind.files()
        for name, release in files:
            tree = fetch(kind.package, release, work)
            native = [native_hash(python, tree, release)] if kind.package == 'sglang' else []
            run(kind.script, tree, release, *native, made)
            if name is None and kind.index().get(release) != kind.own_file(release):
                same.append(settle_release(kind, release, made, args.check))
            else:
                same.append(settle(made, GOLDEN / kind.directory / (name or kind.own_file(release)), args.check))
    if 'pickle-edges' in chosen:
        run('gen_pickle_edges.py', made)
        same.append(settle(made, GOLDEN / 'vllm-hash' / 'pickle-edges.json', args.check))
    if 'trtllm' in chosen:
        kept = GOLDEN / 'trtllm' / 'trtllm-v1_block_key.json'
        if args.trtllm_source:
            run('gen_trtllm.py', args.trtllm_source, json.loads(kept.read_text())['source'], made)
            same.append(settle(made, kept, args.check))
        else:
            say('  trtllm: left out (give --trtllm-source)')
    say(f'{len(same)} files: {sum(same)} the same, {len(same) - sum(same)} not')
    sys.exit(1 if args.check and not all(same) else 0)


if __name__ == '__main__':
    main()
