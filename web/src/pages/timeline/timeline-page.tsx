/* Timeline: moments by day and week with people and topics, and what dreams have learnt. */
import { useMemo } from "react";

import { call } from "../../api/client";
import type { Moment } from "../../api/types";
import { useApi } from "../../api/use-api";
import { Badge } from "../../components/badge";
import { Button, IconButton } from "../../components/button";
import { EmptyState } from "../../components/empty-state";
import { Icon } from "../../components/icon";
import { LoadState } from "../../components/load-state";
import { toPlainText } from "../../components/markdown";
import { Segments } from "../../components/segments";
import { entityPath } from "../../entity-links";
import { addDays, formatDay, formatTime, formatWeekday, startOfDay, startOfWeek, toDayKey, toWords } from "../../format";
import { PageFrame } from "../../layout/page-frame";
import { Link, useQuery } from "../../router";
import { texts } from "../../texts";
import { DreamPanel } from "./dream-panel";
import styles from "./timeline-page.module.css";

type Scale = "day" | "week";
const MAX_MOMENTS = 500;

export default function TimelinePage() {
  const [address, setAddress] = useQuery();
  const scale: Scale = address.get("scale") === "day" ? "day" : "week";
  const day = parseDay(address.get("day"));
  const person = address.get("person");
  const topic = address.get("topic");
  const start = scale === "day" ? day : startOfWeek(day);
  const end = addDays(start, scale === "day" ? 1 : 7);
  const moments = useApi(
    async (signal) => {
      const query = { since: start.toISOString(), until: end.toISOString(), limit: MAX_MOMENTS };
      const page = await call("GET /api/v1/moments", { query, signal });
      return page.data.filter((moment) => moment.starts_timestamp).reverse();
    },
    [start.getTime(), end.getTime()],
  );
  const go = (to: Date) => setAddress({ day: toDayKey(to) === toDayKey(new Date()) ? null : toDayKey(to) });
  const step = scale === "day" ? 1 : 7;
  const shown = moments.data?.filter((moment) => isAbout(moment, person, topic)) ?? [];
  return (
    <PageFrame title={texts.timeline.title} description={texts.timeline.description}>
      <div className={styles.columns}>
        <div className={styles.main}>
          <div className={styles.toolbar}>
            <div className={styles.steps}>
              <IconButton icon="chevronLeft" label={texts.timeline.earlier(scale)} onClick={() => go(addDays(start, -step))} />
              <h2 aria-live="polite">{scale === "day" ? formatWeekday(start) : texts.timeline.week(formatDay(start), formatDay(addDays(end, -1)))}</h2>
              <IconButton icon="chevronRight" label={texts.timeline.later(scale)} onClick={() => go(addDays(start, step))} />
            </div>
            <div className={styles.scale}>
              <Button isSmall onClick={() => go(new Date())}>
                {texts.timeline.today}
              </Button>
              <Segments
                label={texts.timeline.scale}
                value={scale}
                options={[
                  { value: "day", title: texts.timeline.day },
                  { value: "week", title: texts.timeline.weekName },
                ]}
                onChange={(value) => setAddress({ scale: value === "day" ? "day" : null })}
              />
            </div>
          </div>
          {scale === "week" && <WeekStrip start={start} moments={moments.data ?? []} onDay={(chosen) => setAddress({ scale: "day", day: toDayKey(chosen) })} />}
          {(person || topic) && (
            <p className={styles.filter}>
              {texts.timeline.only} <Badge tone="accent">{person ?? topic}</Badge>
              <Button isSmall look="quiet" icon="close" onClick={() => setAddress({ person: null, topic: null })}>
                {texts.timeline.all}
              </Button>
            </p>
          )}
          <LoadState loaded={moments}>{() => (shown.length ? <Days moments={shown} /> : <NoMoments onGo={(time) => go(new Date(time))} />)}</LoadState>
        </div>
        <aside className={styles.side} aria-label={texts.timeline.side}>
          <DreamPanel onChanged={moments.reload} />
          <Names title={texts.timeline.people} name="person" values={(moments.data ?? []).flatMap((moment) => moment.present_persons ?? [])} />
          <Names title={texts.timeline.topics} name="topic" values={(moments.data ?? []).flatMap((moment) => moment.topic_tags ?? [])} />
        </aside>
      </div>
    </PageFrame>
  );
}

function parseDay(text: string | null): Date {
  const parts = /^(\d{4})-(\d\d)-(\d\d)$/.exec(text ?? "");
  const day = parts ? new Date(Number(parts[1]), Number(parts[2]) - 1, Number(parts[3])) : new Date();
  return startOfDay(Number.isNaN(day.getTime()) ? new Date() : day);
}

function isAbout(moment: Moment, person: string | null, topic: string | null): boolean {
  if (person && !moment.present_persons?.includes(person)) return false;
  return !topic || Boolean(moment.topic_tags?.includes(topic));
}

/** The seven days, each with how much happened. */
function WeekStrip({ start, moments, onDay }: { start: Date; moments: readonly Moment[]; onDay: (day: Date) => void }) {
  const counts = new Map<string, number>();
  for (const moment of moments) {
    const key = toDayKey(new Date(moment.starts_timestamp ?? ""));
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  const most = Math.max(1, ...counts.values());
  return (
    <ol className={styles.strip} aria-label={texts.timeline.days}>
      {Array.from({ length: 7 }, (_, index) => addDays(start, index)).map((day) => {
        const number = counts.get(toDayKey(day)) ?? 0;
        const isToday = toDayKey(day) === toDayKey(new Date());
        return (
          <li key={day.getTime()}>
            <button type="button" className={styles.stripDay} aria-current={isToday ? "date" : undefined} onClick={() => onDay(day)}>
              <span className={styles.stripName}>{texts.timeline.weekdays[index(day)]}</span>
              <span className={styles.stripNumber}>{day.getDate()}</span>
              <span className="visually-hidden">{texts.timeline.dayLabel(number)}</span>
              <span className={styles.track} aria-hidden="true">
                <span style={{ height: `${(number / most) * 100}%` }} />
              </span>
            </button>
          </li>
        );
      })}
    </ol>
  );
}

function index(day: Date): number {
  return (day.getDay() + 6) % 7;
}

function Days({ moments }: { moments: readonly Moment[] }) {
  const days = useMemo(() => {
    const groups = new Map<string, Moment[]>();
    for (const moment of moments) {
      const key = toDayKey(new Date(moment.starts_timestamp ?? ""));
      groups.set(key, [...(groups.get(key) ?? []), moment]);
    }
    return [...groups.values()];
  }, [moments]);
  return (
    <div className={styles.days}>
      {days.map((group) => (
        <section key={group[0]?.id} aria-label={formatWeekday(group[0]?.starts_timestamp ?? "")}>
          <h3 className={styles.dayTitle}>{formatWeekday(group[0]?.starts_timestamp ?? "")}</h3>
          <ol className={styles.moments}>
            {group.map((moment) => (
              <MomentCard key={moment.id} moment={moment} />
            ))}
          </ol>
        </section>
      ))}
    </div>
  );
}

function MomentCard({ moment }: { moment: Moment }) {
  const from = moment.starts_timestamp ?? "";
  const to = moment.ends_timestamp;
  const isSpan = to && formatTime(to) !== formatTime(from);
  return (
    <li className={styles.moment}>
      <p className={styles.time}>
        <time dateTime={from}>{formatTime(from)}</time>
        {isSpan && ` – ${formatTime(to)}`}
      </p>
      <div className={styles.card}>
        <header>
          <h4>
            <Link href={entityPath("moments", moment.key ?? moment.id ?? "")}>{moment.name}</Link>
          </h4>
          {(moment.moment_type ?? moment.category) && <Badge>{toWords(moment.moment_type ?? moment.category ?? "")}</Badge>}
        </header>
        {moment.summary && moment.summary !== moment.name && <p className={styles.summary}>{toPlainText(moment.summary)}</p>}
        <p className={styles.names}>
          {moment.present_persons?.map((name) => (
            <NameLink key={name} parameter="person" value={name} />
          ))}
          {moment.topic_tags?.map((name) => (
            <NameLink key={name} parameter="topic" value={name} />
          ))}
          {moment.emotion_tags?.map((name) => (
            <Badge key={name} tone="positive">
              {toWords(name)}
            </Badge>
          ))}
        </p>
      </div>
    </li>
  );
}

function NameLink({ parameter, value }: { parameter: "person" | "topic"; value: string }) {
  const [, setAddress] = useQuery();
  const only = { person: null, topic: null, [parameter]: value };
  return (
    <button type="button" className={styles.name} onClick={() => setAddress(only)}>
      {parameter === "person" && <Icon name="person" size={14} />}
      {parameter === "topic" ? toWords(value) : value}
    </button>
  );
}

/** The people or topics of the period, the most frequent first. */
function Names({ title, name, values }: { title: string; name: "person" | "topic"; values: readonly string[] }) {
  const counts = new Map<string, number>();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  const sorted = [...counts.entries()].sort((left, right) => right[1] - left[1]).slice(0, 20);
  if (!sorted.length) return null;
  return (
    <section className={styles.panel} aria-label={title}>
      <h2>{title}</h2>
      <p className={styles.names}>
        {sorted.map(([value]) => (
          <NameLink key={value} parameter={name} value={value} />
        ))}
      </p>
    </section>
  );
}

function NoMoments({ onGo }: { onGo: (time: string) => void }) {
  const latest = useApi(async (signal) => (await call("GET /api/v1/moments", { query: { limit: 1 }, signal })).data[0] ?? false, []);
  return (
    <LoadState loaded={latest}>
      {(moment) =>
        moment && moment.starts_timestamp ? (
          <EmptyState
            icon="timeline"
            title={texts.timeline.emptyTitle}
            actions={<Button onClick={() => onGo(moment.starts_timestamp ?? "")}>{texts.timeline.latest(formatDay(moment.starts_timestamp))}</Button>}
          >
            {texts.timeline.empty}
          </EmptyState>
        ) : (
          <EmptyState icon="timeline" title={texts.timeline.nothingTitle}>
            {texts.timeline.nothing}
          </EmptyState>
        )
      }
    </LoadState>
  );
}
