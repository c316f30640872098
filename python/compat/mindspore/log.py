"""Messages of scripts: the standard library's logger named mindspore."""
import logging

_logger = logging.getLogger("mindspore")
debug, info, warning, error, critical = _logger.debug, _logger.info, _logger.warning, _logger.error, _logger.critical


def get_log_config():
    """The level and where messages go, by the names of environment variables: GLOG_v, and GLOG_logtostderr, which is "1": files are a script's to add."""
    return {"GLOG_v": get_level(), "GLOG_logtostderr": "1"}


def get_level():
    """The lowest level that is written: 0 debug, 1 info, 2 warning, 3 error, 4 critical."""
    return str(max(0, _logger.getEffectiveLevel() // 10 - 1))
