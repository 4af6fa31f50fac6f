"""Which trouble costs which norm how much."""

from psdnorm.lab.dissect.dissected import read_losses
from psdnorm.lab.dissect.dissection import Dissection, metered
from psdnorm.lab.dissect.dissection_page import limits, write_dissection
from psdnorm.lab.dissect.settings import Models, begun_with, find_models, without_damaged
from psdnorm.lab.dissect.troubles import KINDS, conditions_of
