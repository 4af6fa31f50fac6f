"""Files, processes, progress, documents and text; nothing about sleep."""

from psdnorm.runtime.documents import digest, json_text, read_json, read_yaml, write_json
from psdnorm.runtime.files import (
    LOCK,
    Holder,
    check_writable,
    create_once,
    held,
    holder,
    remove_leftovers,
    written,
)
from psdnorm.runtime.parallel import (
    ProcessBrokenError,
    begin_worker,
    check_scheduler,
    ctrl_c_waits,
    run_all,
    stream_all,
    undisturbed,
)
from psdnorm.runtime.progress import LINE_EVERY_S, errors, progress, say, track
from psdnorm.runtime.text import listed, plural
