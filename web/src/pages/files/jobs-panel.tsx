/* The background jobs that are not done. */
import { call } from "../../api/client";
import type { JobView } from "../../api/types";
import { useApi } from "../../api/use-api";
import { Badge, type BadgeTone } from "../../components/badge";
import { Button } from "../../components/button";
import { LoadState } from "../../components/load-state";
import { Panel } from "../../components/panel";
import { showError } from "../../components/toast";
import { formatDateTime } from "../../format";
import { texts } from "../../texts";
import styles from "./files-page.module.css";

const TONES: Record<JobView["state"], BadgeTone> = { queued: "neutral", running: "accent", dead: "danger" };

export function JobsPanel() {
  const jobs = useApi((signal) => call("GET /api/v1/jobs", { signal }), []);
  const retry = async (job: JobView) => {
    try {
      await call("POST /api/v1/jobs/{job}/retry", { path: { job: job.id } });
      jobs.reload();
    } catch (error) {
      showError(error);
    }
  };
  const actions = (
    <Button isSmall icon="retry" onClick={jobs.reload}>
      {texts.files.refresh}
    </Button>
  );
  return (
    <Panel title={texts.files.jobs} description={texts.files.jobsText} actions={actions}>
      <LoadState loaded={jobs}>
        {(page) =>
          page.data.length === 0 ? (
            <p className={styles.none}>{texts.files.noJobs}</p>
          ) : (
            <ul className={styles.jobs}>
              {page.data.map((job) => (
                <li key={job.id}>
                  <div className={styles.fileText}>
                    <p className={styles.facts}>
                      <strong>{texts.files.jobKinds[job.kind] ?? job.kind}</strong>
                      <Badge tone={TONES[job.state]}>{texts.files.jobStates[job.state]}</Badge>
                      <span>{formatDateTime(job.created_at)}</span>
                      {job.attempts > 0 && <span>{texts.files.attempts(job.attempts)}</span>}
                    </p>
                    {job.error && <p className={styles.error}>{job.error}</p>}
                  </div>
                  {job.state === "dead" && (
                    <Button isSmall icon="retry" onClick={() => void retry(job)}>
                      {texts.files.retry}
                    </Button>
                  )}
                </li>
              ))}
            </ul>
          )
        }
      </LoadState>
    </Panel>
  );
}
