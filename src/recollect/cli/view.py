"""``recollect view``: what an agent remembers, as a page."""

import argparse
import webbrowser
from pathlib import Path

from recollect.cli.arguments import Commands, count, seed
from recollect.cli.reports import check_place
from recollect.errors import RecollectError
from recollect.training.progress import say


def _view(args: argparse.Namespace) -> None:
    if args.serve:
        _serve(args)
        return
    from recollect.view import format as recording
    from recollect.view import page, sources

    if args.recording is not None and not args.recording.name.endswith((".json", ".json.gz")):
        raise RecollectError(f"--recording {args.recording}: a recording's name ends in .json or .json.gz")
    if args.out is not None and args.out.is_dir():
        raise RecollectError(f"--out {args.out} is a folder: name the page in it, such as {args.out / 'view.html'}")
    if args.port is not None:
        raise RecollectError("--port goes with --serve: without it, the page is a file")
    out = args.out or default_out(args.paths)
    in_run = args.out is None and out.parent in args.paths  # a run's folder is recollect's own
    written = [] if args.recording is None else [args.recording]
    check_place(out, "--out", args.out is not None, [*args.paths, *written], lambda path: in_run or page.is_own(path))
    for kept in written:
        check_place(kept, "--recording", True, args.paths, recording.is_own)
    documents = [sources.document(path, env=args.env, seed=args.seed, limit=args.limit, say=say) for path in args.paths]
    if args.recording is not None:
        kept = [found for found in documents if found["format"] == recording.FORMAT]
        if len(kept) != 1:
            raise RecollectError(f"--recording writes one recording; there are {len(kept)} among what was given")
        print(f"recording: {recording.write(args.recording, kept[0])}")
    page.write(out, documents)
    print(f"page: {out} ({out.stat().st_size / 1e6:.1f} MB)")
    if args.open:
        webbrowser.open(out.resolve().as_uri())


def default_out(paths: list[Path]) -> Path:
    """In a run's folder, beside a file, and here for several.

    >>> default_out([Path("a/report.json")]), default_out([Path("a"), Path("b")])
    (PosixPath('a/report.html'), PosixPath('view.html'))
    """
    if len(paths) > 1:
        return Path("view.html")
    (path,) = paths
    return path / "view.html" if path.is_dir() else path.with_name(f"{path.name.split('.')[0]}.html")


def _serve(args: argparse.Namespace) -> None:
    from recollect.view.server import Server, Shelf

    for name in ("out", "recording"):
        if getattr(args, name) is not None:
            raise RecollectError(f"--{name} writes a file, --serve writes none: give one of the two")
    shelf = Shelf(args.paths, say, env=args.env, seed=args.seed, limit=args.limit)
    shelf.documents()  # what is wrong with a path is said now, not in the browser
    with Server(shelf, args.port or 0) as server:
        print(f"serving {server.url} (Ctrl-C ends it)", flush=True)
        if args.open:
            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("stopped")


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 2**16):
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number from 0 to 65535")
    return int(text)


def register(commands: Commands) -> None:
    """Add ``view``."""
    look = commands.add_parser("view", help="a run, an episode, a figure or a report as a page")
    look.add_argument(
        "paths",
        type=Path,
        nargs="+",
        metavar="RUN",
        help="run folder, saved learner, recording, folder of reproduce, or report of benchmark; several side by side",
    )
    look.add_argument(
        "--out", type=Path, metavar="FILE", help="the page (default: view.html in RUN, beside a file, or here)"
    )
    look.add_argument("--no-open", dest="open", action="store_false", help="do not open a browser")
    look.add_argument("--serve", action="store_true", help="serve it on 127.0.0.1 and follow runs that are training")
    look.add_argument("--port", type=_port, help="of --serve (default: a free one)")
    look.add_argument("--seed", type=seed, default=0, help="of the episode that is played (default: 0)")
    look.add_argument("--limit", type=count, default=1000, help="most steps of it (default: 1000)")
    look.add_argument("--recording", type=Path, metavar="FILE", help="write the recording too (.json or .json.gz)")
    look.add_argument("--env", metavar="ID", help="the environment (default: the run's own, unless it is MODULE:ID)")
    look.set_defaults(run=_view)
