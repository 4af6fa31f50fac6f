"""Networks that stage sleep, with any norm."""

from psdnorm.models.acceleration import accelerate
from psdnorm.models.checkpoint import CONFIG, WEIGHTS, Pretrained, from_pretrained
from psdnorm.models.cnn_transformer import CNNTransformer
from psdnorm.models.norms import (
    NORMS,
    PSD_NORMS,
    SCHEDULES,
    check_schedule,
    input_scale_setting,
    plain_norm_arguments,
)
from psdnorm.models.usleep import USleep

__all__ = ["CNNTransformer", "USleep", "accelerate", "from_pretrained"]
