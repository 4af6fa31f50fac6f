"""Scorings as the NSRR's two XML formats have them."""


def nsrr(*stages, before=""):
    """Events (concept, start, duration) as in an NSRR file, among others."""
    events = "".join(
        f"<ScoredEvent><EventType>Stages|Stages</EventType><EventConcept>{concept}</EventConcept>"
        f"<Start>{start}</Start><Duration>{duration}</Duration></ScoredEvent>"
        for concept, start, duration in stages
    )
    apnea = (
        "<ScoredEvent><EventType>Respiratory|Respiratory</EventType><EventConcept>Hypopnea|Hypopnea"
        "</EventConcept><Start>31.5</Start><Duration>22</Duration><SignalLocation>Airflow"
        "</SignalLocation></ScoredEvent>"
    )
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>{before}<PSGAnnotation><SoftwareVersion>Compumedics'
        f"</SoftwareVersion><EpochLength>30</EpochLength><ScoredEvents>{apnea}{events}"
        "</ScoredEvents></PSGAnnotation>"
    )


def profusion(*stages, epoch_s=30):
    epochs = "".join(f"<SleepStage>{stage}</SleepStage>" for stage in stages)
    return (
        f"<CMPStudyConfig><EpochLength>{epoch_s}</EpochLength><ScoredEvents><ScoredEvent><Name>"
        "SpO2 artifact</Name><Start>11</Start><Duration>13</Duration></ScoredEvent></ScoredEvents>"
        f"<SleepStages>{epochs}</SleepStages></CMPStudyConfig>"
    )
