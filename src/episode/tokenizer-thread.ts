// Encodes texts in a worker thread: long ones, and those with quoted tokens.
import { workerData } from 'node:worker_threads';
import { answerCalls } from '../base/worker-thread.js';
import { loadTokenizer } from './tokenizer.js';

const tokenizer = loadTokenizer(workerData as string);
answerCalls((text: string) => tokenizer.encode(text));
