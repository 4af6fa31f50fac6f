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
    parquet_errors_as,
    read_json,
    read_yaml,
    remove_leftovers,
    write_json,
    written,
)
from psdnorm.runtime.interrupts import (
    TimeLimitReached,
    check_minutes,
    ctrl_c_waits,
    sigterm_as_ctrl_c,
    time_limit,
    undisturbed,
)
from psdnorm.runtime.parallel import ProcessBrokenError, check_scheduler, run_all, stream_all
from psdnorm.runtime.progress import errors, listed, plural, progress_bar, say, track, verb
