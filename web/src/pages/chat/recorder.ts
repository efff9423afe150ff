/* Record speech, and turn it into a small WAV file, which every transcription provider reads. */
import { useCallback, useEffect, useRef, useState } from "react";

const SAMPLE_RATE = 16_000;
const MAX_SECONDS = 300;
const BLOCK = 0x8000;

export interface Recorder {
  seconds: number | null;
  start: () => Promise<void>;
  /** Stop and return the recording in base64; null if there is none. */
  finish: () => Promise<string | null>;
  cancel: () => void;
}

/** Record with the microphone. `seconds` is null while nothing is recorded. */
export function useRecorder(): Recorder {
  const media = useRef<MediaRecorder | null>(null);
  const parts = useRef<Blob[]>([]);
  const [seconds, setSeconds] = useState<number | null>(null);
  const release = useCallback(() => {
    media.current?.stream.getTracks().forEach((track) => track.stop());
    media.current = null;
    setSeconds(null);
  }, []);
  useEffect(() => release, [release]);
  const isRecording = seconds !== null;
  useEffect(() => {
    if (!isRecording) return;
    const timer = setInterval(() => setSeconds((old) => (old === null ? null : Math.min(MAX_SECONDS, old + 1))), 1000);
    return () => clearInterval(timer);
  }, [isRecording]);
  const start = async () => {
    const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
    const recorder = new MediaRecorder(stream);
    parts.current = [];
    recorder.addEventListener("dataavailable", (event) => parts.current.push(event.data));
    recorder.start(250);
    media.current = recorder;
    setSeconds(0);
  };
  const finish = async () => {
    const recorder = media.current;
    if (!recorder) return null;
    const stopped = new Promise((resolve) => recorder.addEventListener("stop", resolve, { once: true }));
    recorder.stop();
    await stopped;
    release();
    const recorded = new Blob(parts.current, { type: recorder.mimeType });
    return recorded.size === 0 ? null : toBase64(await toWav(recorded));
  };
  return { seconds, start, finish, cancel: release };
}

async function toWav(recorded: Blob): Promise<Uint8Array> {
  const decoder = new OfflineAudioContext(1, 1, SAMPLE_RATE);
  const sound = await decoder.decodeAudioData(await recorded.arrayBuffer());
  const mixer = new OfflineAudioContext(1, Math.max(1, Math.ceil(sound.duration * SAMPLE_RATE)), SAMPLE_RATE);
  const source = mixer.createBufferSource();
  source.buffer = sound;
  source.connect(mixer.destination);
  source.start();
  return writeWav((await mixer.startRendering()).getChannelData(0));
}

function writeWav(samples: Float32Array): Uint8Array {
  const bytes = samples.length * 2;
  const view = new DataView(new ArrayBuffer(44 + bytes));
  const write = (offset: number, text: string) => [...text].forEach((char, at) => view.setUint8(offset + at, char.charCodeAt(0)));
  write(0, "RIFF");
  view.setUint32(4, 36 + bytes, true);
  write(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true);
  view.setUint16(22, 1, true);
  view.setUint32(24, SAMPLE_RATE, true);
  view.setUint32(28, SAMPLE_RATE * 2, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  write(36, "data");
  view.setUint32(40, bytes, true);
  samples.forEach((sample, at) => view.setInt16(44 + at * 2, Math.max(-1, Math.min(1, sample)) * 0x7fff, true));
  return new Uint8Array(view.buffer);
}

function toBase64(bytes: Uint8Array): string {
  let text = "";
  for (let at = 0; at < bytes.length; at += BLOCK) text += String.fromCharCode(...bytes.subarray(at, at + BLOCK));
  return btoa(text);
}
