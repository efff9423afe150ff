/* Where the person writes: text, files, speech, and who answers. */
import { useEffect, useRef, type KeyboardEvent } from "react";

import { call } from "../../api/client";
import { useApi } from "../../api/use-api";
import { Button, IconButton } from "../../components/button";
import { Icon } from "../../components/icon";
import { Menu, MenuChoice } from "../../components/menu";
import { showToast } from "../../components/toast";
import { texts } from "../../texts";
import { AttachmentList, type Attachment } from "./attachments";
import styles from "./composer.module.css";
import type { ChatChoice } from "./conversation";
import { useRecorder } from "./recorder";

const MAX_HEIGHT_PX = 240;
const DEFAULT_AGENT = "rem";
const DEFAULT_MODEL = "rem";

interface Props {
  draft: string;
  onDraft: (text: string) => void;
  isRunning: boolean;
  choice: ChatChoice;
  onChoice: (choice: ChatChoice) => void;
  onSend: (text: string) => void;
  onSpeak: (recording: string) => void;
  onStop: () => void;
  attachments: readonly Attachment[];
  onFiles: (files: readonly File[]) => void;
  onRemoveFile: (id: number) => void;
}

export function Composer(props: Props) {
  const { draft, onDraft, isRunning, onSend, onStop } = props;
  const input = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    // A menu or a field that the person has opened while the session was loading keeps the focus.
    const holder = document.activeElement;
    if (!holder?.closest("[role=menu], [role=dialog], input, textarea, select")) input.current?.focus();
  }, []);
  const picker = useRef<HTMLInputElement>(null);
  const recorder = useRecorder();
  const isRecording = recorder.seconds !== null;
  useEffect(() => {
    const field = input.current;
    if (!field) return;
    field.style.height = "auto";
    field.style.height = `${Math.min(field.scrollHeight, MAX_HEIGHT_PX)}px`;
  }, [draft, isRecording]);
  const send = () => {
    const text = draft.trim();
    if (!text || isRunning) return;
    onDraft("");
    onSend(text);
  };
  const press = (event: KeyboardEvent) => {
    if (event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing) {
      event.preventDefault();
      send();
    }
    if (event.key === "Escape" && isRunning) onStop();
  };
  const record = () => recorder.start().catch(() => showToast(texts.chat.noMicrophone, { tone: "error" }));
  const finish = async () => {
    const recording = await recorder.finish().catch(() => null);
    if (recording) props.onSpeak(recording);
    else showToast(texts.chat.emptyRecording, { tone: "error" });
  };
  return (
    <div className={styles.composer}>
      <div className={styles.box}>
        <AttachmentList attachments={props.attachments} onRemove={props.onRemoveFile} />
        {isRecording ? (
          <p className={styles.recording} role="status">
            <span className={styles.dot} aria-hidden="true" />
            {texts.chat.recording(recorder.seconds ?? 0)}
          </p>
        ) : (
          <textarea
            ref={input}
            className={styles.input}
            rows={1}
            value={draft}
            maxLength={1_000_000}
            aria-label={texts.chat.message}
            placeholder={texts.chat.placeholder}
            onChange={(event) => onDraft(event.target.value)}
            onKeyDown={press}
          />
        )}
        <div className={styles.bar}>
          {isRecording ? (
            <>
              <Button isSmall onClick={recorder.cancel}>
                {texts.common.cancel}
              </Button>
              <span className={styles.space} />
              <Button isSmall look="primary" icon="send" onClick={() => void finish()}>
                {texts.chat.sendRecording}
              </Button>
            </>
          ) : (
            <>
              <IconButton icon="attach" label={texts.chat.addFiles} onClick={() => picker.current?.click()} />
              <IconButton icon="microphone" label={texts.chat.record} disabled={isRunning} onClick={() => void record()} />
              <ChoiceMenu choice={props.choice} onChoice={props.onChoice} />
              <span className={styles.space} />
              {isRunning ? (
                <button type="button" className={styles.send} aria-label={texts.chat.stop} title={texts.chat.stop} onClick={onStop}>
                  <Icon name="stop" size={18} />
                </button>
              ) : (
                <button
                  type="button"
                  className={styles.send}
                  aria-label={texts.chat.send}
                  title={texts.chat.send}
                  disabled={!draft.trim()}
                  onClick={send}
                >
                  <Icon name="send" size={18} />
                </button>
              )}
            </>
          )}
        </div>
      </div>
      <p className={styles.hint}>{texts.chat.hint}</p>
      <input
        ref={picker}
        type="file"
        multiple
        hidden
        aria-label={texts.chat.addFiles}
        onChange={(event) => {
          props.onFiles([...(event.target.files ?? [])]);
          event.target.value = "";
        }}
      />
    </div>
  );
}

function ChoiceMenu({ choice, onChoice }: Pick<Props, "choice" | "onChoice">) {
  const loaded = useApi(async (signal) => {
    const [agents, models] = await Promise.all([
      call("GET /api/v1/agents", { signal }),
      call("GET /api/v1/models", { signal }),
    ]);
    return { agents: agents.data.filter((agent) => agent.kind === "agent"), models: models.data };
  }, []);
  const agent = choice.agent ?? DEFAULT_AGENT;
  const model = choice.model ?? DEFAULT_MODEL;
  const shown = model === DEFAULT_MODEL ? agent : `${agent} · ${model}`;
  const trigger = (
    <button type="button" className={styles.choice} aria-label={texts.chat.choice(agent, model)}>
      <Icon name="agent" size={16} />
      <span>{shown}</span>
      <Icon name="chevronDown" size={14} />
    </button>
  );
  const agents = (loaded.data?.agents ?? []).map((each) => ({ value: each.name, title: each.name, note: each.summary }));
  const models = (loaded.data?.models ?? []).map((each) => ({
    value: each.id,
    title: each.id,
    note: each.description ?? undefined,
  }));
  return (
    <Menu trigger={trigger} align="start" side="top">
      <MenuChoice
        label={texts.chat.agent}
        value={agent}
        options={agents}
        onChange={(name) => onChoice({ ...choice, agent: name })}
      />
      <MenuChoice
        label={texts.chat.model}
        value={model}
        options={models}
        onChange={(name) => onChoice({ ...choice, model: name === DEFAULT_MODEL ? null : name })}
      />
    </Menu>
  );
}
