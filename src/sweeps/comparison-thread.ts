// A worker thread that compares one state of a sweep with the reference.
import { answerCalls } from '../base/worker-thread.js';
import { compareState } from './comparison.js';

answerCalls((input: Parameters<typeof compareState>) => compareState(...input));
