"""Files, processes, progress, documents and text; nothing about sleep."""

from psdnorm.runtime.files import (
    LOCK,
    Holder,
    check_writable,
    create_once,
    digest,
    held,
    holder,
    json_text,
    read_json,
    read_yaml,
    remove_leftovers,
    write_json,
    written,
)
from psdnorm.runtime.interrupts import (
    TimeLimitReached,
    check_minutes,
    sigterm_as_ctrl_c,
    time_limit,
)
from psdnorm.runtime.parallel import (
    ProcessBrokenError,
    check_scheduler,
    ctrl_c_waits,
    run_all,
    stream_all,
    undisturbed,
)
from psdnorm.runtime.progress import errors, listed, plural, progress_bar, say, track
